//! Files go to a store and come back. Each failure is one line with an exit code of its own.

use redrt_wire::object::{Ending, Facts, ObjectEntry, Said};
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

    /// The error's line, after checks of the exit code and that it is the only one.
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
    // A process that has failed already reads nothing.
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
    let entry = ObjectEntry { key: key.into(), path: path.into(), facts: facts.cloned() };
    serde_json::to_string(&entry).expect("it can be written")
}

fn url_of(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

/// Puts files in a directory: the facts of each, with its key.
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
    // An unchanged file is not got again; a missing or changed one is.
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
    // A file stands where a directory would have to be.
    let told =
        redstore("put", &url_of(&file.join("store")), &[entry("0.image", &file, None)], &[]).failed(Ending::Failed);
    assert!(told.contains("Failed to make "), "{told}");
}

#[test]
fn what_is_no_store_is_refused() {
    let told = |url: &str| redstore("list", url, &[], &[]).failed(Ending::Usage);
    assert!(
        told("ftp://host/x")
            .contains("no ftp: say s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY")
    );
    assert!(told("nothing").contains("no URL"));
    let told = told(&format!("s3://key:{SECRET}@bucket/x"));
    assert!(told.contains("name them in the environment"), "{told}");
    let told = redstore("put", "file:///x", &["{}".into()], &[]).failed(Ending::Usage);
    assert!(told.contains("a line of standard input"), "{told}");
}

/// Answers each connection by `answer` until this process ends.
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
    // Three servers: one takes nothing, one stops within a request, one hangs up.
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

/// The store does not list the file of a writer that was killed within it.
#[test]
fn what_was_on_its_way_into_a_directory_is_listed_and_deleted() {
    let parent = tempfile::tempdir().unwrap();
    let (store, url) = (parent.path().join("store"), url_of(&parent.path().join("store")));
    fs::create_dir_all(store.join("job/line-1")).unwrap();
    fs::write(store.join("job/line-1/0.image#1"), content(100)).unwrap();
    let found = redstore("list", &url, &[], &[]).done();
    assert_eq!(found, [Said::Found("job/line-1/0.image#1".into(), 100)]);
    redstore("delete", &url, &["job/line-1/0.image#1".into()], &[]).done();
    assert!(!store.exists());
}

#[test]
fn an_object_that_must_not_be_there_is_made_once() {
    let parent = tempfile::tempdir().unwrap();
    let url = url_of(&parent.path().join("store"));
    redstore("create", &url, &["life-1".into()], &[]).done();
    let told = redstore("create", &url, &["life-1".into()], &[]).failed(Ending::Failed);
    assert!(told.contains("Failed to make life-1 in file://") && told.contains("it is there"), "{told}");
    assert_eq!(redstore("list", &url, &[], &[]).done(), [Said::Found("life-1".into(), 0)]);
}

/// A server that keeps objects in memory. It answers unsigned requests as each kind of store does.
#[derive(Clone, Default)]
struct Bucket(std::sync::Arc<std::sync::Mutex<std::collections::BTreeMap<String, Vec<u8>>>>);

impl Bucket {
    fn answer(&self, stream: std::net::TcpStream) {
        let mut input = std::io::BufReader::new(stream.try_clone().unwrap());
        let mut output = stream;
        while let Some((method, target, has_condition, body)) = request(&mut input) {
            let target =
                ["%2F/", "%2D-", "%2E."].iter().fold(target, |target, one| target.replace(&one[..3], &one[3..]));
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            // The path begins with the bucket, or with the account and the container.
            let key = path.rsplit_once("prefix/").map(|(_, key)| key.to_owned());
            let mut objects = self.0.lock().unwrap();
            let (status, body) = match (method.as_str(), key) {
                ("GET", _) if query.contains("list") || path.ends_with("container") => {
                    ("200 OK", listing(&objects, query))
                }
                ("PUT", Some(key)) if has_condition && objects.contains_key(&key) => ("409 Conflict", Vec::new()),
                ("PUT", Some(key)) => {
                    objects.insert(key, body);
                    ("201 Created", Vec::new())
                }
                ("GET", Some(key)) => {
                    objects.get(&key).map_or(("404 Not Found", Vec::new()), |got| ("200 OK", got.clone()))
                }
                // This request deletes several objects; here it is always one.
                ("POST", _) => {
                    let text = String::from_utf8_lossy(&body).into_owned();
                    let key = text.split("prefix/").nth(1).and_then(|rest| rest.split([' ', '<', '?']).next());
                    objects.remove(key.unwrap_or_default());
                    ("202 Accepted", deleted(query))
                }
                ("DELETE", Some(key)) => {
                    objects.remove(&key);
                    ("204 No Content", Vec::new())
                }
                _ => ("400 Bad Request", Vec::new()),
            };
            let facts = "ETag: \"x\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nx-goog-generation: 1\r\n\
                         Content-Type: multipart/mixed; boundary=b\r\n";
            let head = format!("HTTP/1.1 {status}\r\n{facts}Content-Length: {}\r\n\r\n", body.len());
            if output.write_all(&[head.into_bytes(), body].concat()).is_err() {
                return;
            }
        }
    }
}

/// Method, target, true if the object must not exist yet, and body.
fn request(input: &mut impl std::io::BufRead) -> Option<(String, String, bool, Vec<u8>)> {
    let (mut first, mut length, mut has_condition) = (String::new(), 0, false);
    input.read_line(&mut first).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "if-none-match" | "x-goog-if-generation-match" => has_condition = true,
            _ => {}
        }
    }
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some((method, target, has_condition, body))
}

/// The listing in the format of S3 and Google Cloud Storage, and in Azure's.
fn listing(objects: &std::collections::BTreeMap<String, Vec<u8>>, query: &str) -> Vec<u8> {
    let when = "2026-01-01T00:00:00.000Z";
    let of_s3 = |(key, bytes): (&String, &Vec<u8>)| {
        let size = bytes.len();
        format!(
            "<Contents><Key>prefix/{key}</Key><LastModified>{when}</LastModified><ETag>x</ETag>\
             <Size>{size}</Size></Contents>"
        )
    };
    let of_azure = |(key, bytes): (&String, &Vec<u8>)| {
        let size = bytes.len();
        format!(
            "<Blob><Name>prefix/{key}</Name><Properties><Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified>\
             <Content-Length>{size}</Content-Length><Content-Type>x</Content-Type><Etag>x</Etag></Properties></Blob>"
        )
    };
    let text = match query.contains("comp=list") {
        true => {
            let all: String = objects.iter().map(of_azure).collect();
            format!("<EnumerationResults><Blobs>{all}</Blobs><NextMarker/></EnumerationResults>")
        }
        false => format!("<ListBucketResult>{}</ListBucketResult>", objects.iter().map(of_s3).collect::<String>()),
    };
    text.into_bytes()
}

fn deleted(query: &str) -> Vec<u8> {
    match query.contains("comp=batch") {
        true => {
            b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n\r\n--b--\r\n"
                .to_vec()
        }
        false => b"<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>".to_vec(),
    }
}

#[test]
fn files_go_to_each_kind_of_store_and_come_back() {
    let bucket = Bucket::default();
    let address = serve(move |stream| bucket.answer(stream));
    let endpoint = format!("http://{address}");
    let account = format!("{endpoint}/account");
    let of_s3 = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    let key = r#"{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#;
    let of_google =
        [("GOOGLE_BASE_URL", endpoint.as_str()), ("GOOGLE_ALLOW_HTTP", "true"), ("GOOGLE_SERVICE_ACCOUNT_KEY", key)];
    let of_azure = [
        ("AZURE_STORAGE_ENDPOINT", account.as_str()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_ALLOW_HTTP", "true"),
        ("AZURE_SKIP_SIGNATURE", "true"),
    ];
    let parent = tempfile::tempdir().unwrap();
    let (file, to) = (parent.path().join("file"), parent.path().join("to"));
    fs::write(&file, content(10_000)).unwrap();
    let kinds: [(&str, &[(&str, &str)]); 3] =
        [("s3://bucket/prefix", &of_s3), ("gs://bucket/prefix", &of_google), ("az://container/prefix", &of_azure)];
    for (url, environment) in kinds {
        let stored = put(url, &[entry("line-1/0.image", &file, None)], environment);
        let found = redstore("list", url, &[], environment).done();
        assert_eq!(found, [Said::Found("line-1/0.image".into(), 10_000)], "{url}");
        redstore("get", url, &[entry("line-1/0.image", &to, Some(&stored[0].1))], environment).done();
        assert!(fs::read(&to).unwrap() == content(10_000), "{url}");
        fs::remove_file(&to).unwrap();
        redstore("delete", url, &["line-1/0.image".into()], environment).done();
        redstore("create", url, &["life-1".into()], environment).done();
        let told = redstore("create", url, &["life-1".into()], environment).failed(Ending::Failed);
        assert!(told.contains("it is there"), "{told}");
        redstore("delete", url, &["life-1".into()], environment).done();
        assert!(redstore("list", url, &[], environment).done().is_empty(), "{url}");
    }
}
