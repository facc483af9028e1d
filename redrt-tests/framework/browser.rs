//! A browser without a window, driven by the WebDriver protocol (W3C) of `chromedriver`.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a page that changes by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None`, with the reason printed, where there is no chromedriver.
    pub fn start() -> Option<Self> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = driver else {
            println!("skipped: there is no chromedriver (scripts/setup-tests.sh installs it)");
            return None;
        };
        let mut lines = BufReader::new(driver.stdout.take().expect("it is a pipe")).lines();
        let port = lines.find_map(|line| {
            let line = line.expect("its output can be read");
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        // Nobody reads its later output; unread, it would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().expect("the temporary directory can be written");
        let mut browser =
            Self { driver, port: port.expect("it says its port"), session: String::new(), _profile: profile };
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            // Requests of a page to any other address fail.
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            &profile,
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": { "args": arguments } } } });
        let session = browser.ask("POST", "/session", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session has a name").to_owned();
        Some(browser)
    }

    /// Sends a request to the driver and returns the value of its answer.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\nConnection: close");
        write!(stream, "{head}\r\n\r\n{body}").expect("chromedriver reads");
        // The driver keeps connections open even when asked to close them: the length says where the answer ends.
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("chromedriver answers");
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().expect("a length is a number");
                }
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).expect("an answer is as long as it says");
        let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        let value = &answer["value"];
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value.clone()
    }

    fn command(&self, what: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}/{what}", self.session), body)
    }

    /// Opens an address in the page.
    pub fn open(&self, address: &str) {
        let _ = self.command("url", &json!({ "url": address }));
    }

    /// Runs a script in the page and returns its value.
    pub fn script(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an expression is true in the page.
    pub fn wait_until(&self, expression: &str) {
        let begin = Instant::now();
        while self.script(&format!("return Boolean({expression})")) != json!(true) {
            let text = || self.script("return document.body.innerText");
            assert!(begin.elapsed() < PATIENCE, "{expression} does not come true:\n{}", text());
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Pictures of the page at 1400 and 420 pixels, light and dark, in `target/pages`. On no screen may the page itself
    /// be wider than the window.
    pub fn picture(&self, name: &str) -> Vec<PathBuf> {
        let directory = crate::prefix().parent().expect("the prefix is in a directory").join("pages");
        std::fs::create_dir_all(&directory).expect("the target directory can be written");
        let mut pictures = Vec::new();
        for (width, scheme) in [(1400, "light"), (1400, "dark"), (420, "light"), (420, "dark")] {
            let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
            self.devtools("Emulation.setEmulatedMedia", &json!({ "features": features }));
            let metrics = json!({ "width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
            self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
            let too_wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
            assert_eq!(self.script(too_wide), json!(0), "{name} at {width}");
            let whole = json!({ "format": "png", "captureBeyondViewport": true });
            let taken = self.devtools("Page.captureScreenshot", &whole);
            let path = directory.join(format!("{name}-{width}-{scheme}.png"));
            write_base64(&path, taken["data"].as_str().expect("a picture"));
            pictures.push(path);
        }
        pictures
    }

    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            let _ = self.ask("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn write_base64(path: &Path, text: &str) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: &u8| DIGITS.iter().position(|digit| digit == byte);
    let digits: Vec<_> = text.as_bytes().iter().map_while(digit).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let number = four.iter().fold(0, |number, digit| number << 6 | digit) << (6 * (4 - four.len()));
        let bytes = [(number >> 16) as u8, (number >> 8) as u8, number as u8];
        bytes.into_iter().take(four.len() - 1)
    });
    std::fs::write(path, bytes.collect::<Vec<u8>>()).expect("the target directory can be written");
}
