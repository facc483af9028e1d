//! Files go to a store and come back, and what goes wrong is told in one line, with an exit code of its own.

use redrt_wire::object::{Ending, Entry, Facts, Said};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// More than two pieces.
const LARGE_BYTES: usize = (20 << 20) + 77;
const SECRET: &str = "a-secret-that-nobody-prints";

struct Outcome {
    code: i32,
    said: Vec<Said>,
    error: String,
}

impl Outcome {
    fn done(self) -> Vec<Said> {
        assert_eq!((self.code, self.error.as_str()), (0, ""));
        self.said
    }

    /// It has failed so, and says why in one line.
    fn failed(self, ending: Ending) -> String {
        assert_eq!((self.code, self.error.lines().count()), (ending as i32, 1), "{}", self.error);
        assert!(!self.error.contains(SECRET), "{}", self.error);
        self.error
    }
}

fn redstore(command: &str, url: &str, lines: &[String], environment: &[(&str, &str)]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_redstore"))
        .args([command, url])
        .env_clear()
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut input = child.stdin.take().expect("it was asked for");
    // One that has failed already reads nothing.
    let _ = lines.iter().try_for_each(|line| writeln!(input, "{line}"));
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8(output.stdout).expect("it is JSON");
    Outcome {
        code: output.status.code().expect("it exits"),
        said: said.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn entry(key: &str, path: &Path, facts: Option<&Facts>) -> String {
    let entry = Entry { key: key.into(), path: path.into(), facts: facts.cloned() };
    serde_json::to_string(&entry).expect("it can be written")
}

fn url_of(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

/// What is put in a directory: the facts of each, by its key.
fn put(url: &str, entries: &[String], environment: &[(&str, &str)]) -> Vec<(String, Facts)> {
    let said = redstore("put", url, entries, environment).done();
    let stored = said.into_iter().filter_map(|said| match said {
        Said::Stored(stored) => Some((stored.key, stored.facts)),
        _ => None,
    });
    stored.collect()
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn files_go_and_come_back_as_they_were_for_their_owner_only() {
    let parent = tempfile::tempdir().unwrap();
    let (store, url) = (parent.path().join("a/store"), url_of(&parent.path().join("a/store")));
    let files = [("line-1/0.image", LARGE_BYTES), ("line-1/1.image", 4096), ("line-2/host-0.memory", 0)];
    let mut entries = Vec::new();
    for (number, (key, len)) in files.into_iter().enumerate() {
        let path = parent.path().join(number.to_string());
        fs::write(&path, content(len)).unwrap();
        entries.push(entry(key, &path, None));
    }
    assert!(redstore("list", &url, &[], &[]).done().is_empty());
    let stored = put(&url, &entries, &[]);
    let named = |(key, facts): &(String, Facts)| (key.clone(), facts.bytes as usize);
    assert_eq!(stored.iter().map(named).collect::<Vec<_>>(), files.map(|(key, len)| (key.to_owned(), len)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&store), mode(&store.join("line-1")), mode(&store.join("line-1/0.image"))), (0o700, 0o700, 0o600));
    let mut found: Vec<_> = redstore("list", &url, &[], &[]).done();
    found.sort_by_key(|found| format!("{found:?}"));
    assert_eq!(found, files.map(|(key, len)| Said::Found(key.into(), len as u64)));
    let to = parent.path().join("to");
    let wanted: Vec<_> = stored.iter().map(|(key, facts)| entry(key, &to.join(key), Some(facts))).collect();
    redstore("get", &url, &wanted, &[]).done();
    for (key, len) in files {
        assert!(fs::read(to.join(key)).unwrap() == content(len), "{key}");
        assert_eq!(mode(&to.join(key)), 0o600);
    }
    // What is there as it was is not got again; what is not, is.
    let _ = fs::remove_file(store.join("line-1/1.image"));
    fs::write(to.join("line-1/0.image"), content(LARGE_BYTES - 1)).unwrap();
    redstore("get", &url, &wanted, &[]).done();
    assert!(fs::read(to.join("line-1/0.image")).unwrap() == content(LARGE_BYTES));
    let keys = ["line-1/0.image", "line-1/1.image", "line-2/host-0.memory"].map(str::to_owned);
    redstore("delete", &url, &keys, &[]).done();
    assert!(redstore("list", &url, &[], &[]).done().is_empty() && !store.exists());
    assert!(fs::read_dir(to.join("line-1")).unwrap().count() == 2);
}

#[test]
fn what_is_missing_or_damaged_is_told_and_leaves_no_file() {
    let parent = tempfile::tempdir().unwrap();
    let (url, file, to) = (url_of(&parent.path().join("store")), parent.path().join("file"), parent.path().join("to"));
    fs::write(&file, content(10_000)).unwrap();
    let stored = put(&url, &[entry("0.image", &file, None)], &[]);
    let facts = &stored[0].1;
    for changed in [content(9_999), vec![7; 10_000]] {
        fs::write(parent.path().join("store/0.image"), changed).unwrap();
        let told = redstore("get", &url, &[entry("0.image", &to, Some(facts))], &[]).failed(Ending::Damaged);
        assert!(told.starts_with("redstore: 0.image in file:///") && told.contains("not what was put there"), "{told}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
    }
    let told = redstore("get", &url, &[entry("1.image", &to, Some(facts))], &[]).failed(Ending::Missing);
    assert!(told.starts_with("redstore: Failed to get 1.image in file:///"), "{told}");
    let gone = redstore("put", &url, &[entry("1.image", &parent.path().join("gone"), None)], &[]);
    assert!(gone.failed(Ending::Failed).contains("gone: No such file"));
    // A file is where a directory would have to be.
    let told =
        redstore("put", &url_of(&file.join("store")), &[entry("0.image", &file, None)], &[]).failed(Ending::Failed);
    assert!(told.contains("Failed to make "), "{told}");
}

#[test]
fn what_is_no_store_is_refused() {
    let told = |url: &str| redstore("list", url, &[], &[]).failed(Ending::Usage);
    assert!(told("ftp://host/x").contains("no ftp: say s3://BUCKET/PREFIX or file:///DIRECTORY"));
    assert!(told("nothing").contains("no URL"));
    let told = told(&format!("s3://key:{SECRET}@bucket/x"));
    assert!(told.contains("name them in the environment"), "{told}");
    let told = redstore("put", "file:///x", &["{}".into()], &[]).failed(Ending::Usage);
    assert!(told.contains("a line of standard input"), "{told}");
}

/// Does this with each connection, until this process ends.
fn serve(answer: impl Fn(std::net::TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn to_server(address: SocketAddr, command: &str, lines: &[String]) -> Outcome {
    let endpoint = format!("http://{address}");
    let environment = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("REDRT_STORE_PATIENCE", "2"),
    ];
    redstore(command, "s3://bucket/prefix", lines, &environment)
}

#[test]
fn a_store_that_does_not_answer_is_not_waited_for_without_end() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, content(LARGE_BYTES)).unwrap();
    // One takes nothing, one stops in the midst of a request, one hangs up.
    let silent = serve(|stream| {
        let _held = stream;
        thread::park();
    });
    let stops = serve(|mut stream| {
        let _ = stream.read_exact(&mut [0; 300]);
        thread::park();
    });
    let ends = serve(drop);
    for address in [silent, stops, ends] {
        let told = to_server(address, "put", &[entry("0.image", &file, None)]).failed(Ending::Silent);
        assert!(told.contains("does not answer"), "{told}");
        let told = to_server(address, "list", &[]).failed(Ending::Silent);
        assert!(told.contains("s3://bucket/prefix"), "{told}");
    }
    let nobody = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let told = to_server(nobody, "list", &[]).failed(Ending::Silent);
    assert!(told.contains("it cannot be reached"), "{told}");
}

#[test]
fn a_store_that_refuses_says_so_without_credentials() {
    let refuses = serve(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let body = format!("<Error><Code>SignatureDoesNotMatch</Code><Key>{SECRET}</Key></Error>");
        let _ = write!(
            stream,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    });
    let told = to_server(refuses, "list", &[]).failed(Ending::Denied);
    assert!(told.contains("the store refuses; look at AWS_ACCESS_KEY_ID"), "{told}");
}
