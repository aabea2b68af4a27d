//! A server with the S3 API: moto, in a process of its own on a free loopback port.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::{PATIENCE, free_address};

/// Where `scripts/setup s3` puts it.
const PROGRAM: &str = "../../.venv-s3/bin/moto_server";

/// The secret that the node and the command line have in their environment.
pub(crate) const SECRET: &str = "a-secret-that-nobody-may-see";

/// An S3 with one empty bucket; dropping it ends it.
pub(crate) struct S3 {
    server: Child,
    address: SocketAddr,
    log: PathBuf,
    _folder: TempDir,
}

impl S3 {
    /// Starts it. Where there is none, says so.
    pub(crate) fn start(bucket: &str) -> Option<S3> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(PROGRAM);
        if !cfg!(feature = "cloud") {
            eprintln!("skipped: S3 (built without the feature cloud)");
            return None;
        }
        if !program.exists() {
            eprintln!("skipped: no .venv-s3/bin/moto_server (scripts/setup s3)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("moto.log");
        let output = File::create(&log).unwrap();
        let address = free_address();
        let server = Command::new(program)
            .args(["-H", &address.ip().to_string()])
            .args(["-p", &address.port().to_string()])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut s3 = S3 {
            server,
            address,
            log,
            _folder: folder,
        };
        s3.wait_for_bucket(bucket);
        Some(s3)
    }

    fn wait_for_bucket(&mut self, bucket: &str) {
        let started = Instant::now();
        while self.put(bucket).is_none_or(|status| status != 200) {
            let ended = self.server.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < PATIENCE,
                "moto does not answer, {ended:?}:\n{}",
                std::fs::read_to_string(&self.log).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The status of a PUT without content, if anybody answers.
    fn put(&self, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "PUT /{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// What clients of it have in their environment.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        [
            ("AWS_ACCESS_KEY_ID", "aerostat"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ENDPOINT", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}
