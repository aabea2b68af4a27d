//! An etcd cluster of three members on loopback, with folders of its own, which ends with this.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const MEMBERS: usize = 3;

/// Where they say how they are, without TLS.
const HEALTH_PORT: u16 = 2381;

/// How long they may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes certificates for hosts, in a folder.
pub(crate) type Makes<'a> = &'a dyn Fn(&[IpAddr]) -> PathBuf;

pub(crate) struct Members {
    folder: tempfile::TempDir,
    /// For clients, and for each other.
    addresses: Vec<(SocketAddr, SocketAddr)>,
    running: Vec<Option<Child>>,
    /// The network namespace they are in, if it is not this one.
    space: Option<String>,
    /// The folder with the certificates that members have and ask for, if they do.
    certificates: Option<PathBuf>,
}

impl Members {
    /// Nothing, and that is said, where there is no etcd.
    pub(crate) fn start() -> Option<Members> {
        Members::start_by(None)
    }

    /// In a network namespace that has these addresses.
    #[allow(dead_code, reason = "not all tests have namespaces")]
    pub(crate) fn start_in(space: &str, hosts: [IpAddr; MEMBERS]) -> Option<Members> {
        Members::start_at(hosts, None, Some(space.to_owned()))
    }

    /// As [`Members::start`]; with a folder's `ca.crt`, `node.crt` and `node.key`, which is made for these addresses,
    /// they speak TLS and ask clients for certificates.
    pub(crate) fn start_by(certificates: Option<Makes<'_>>) -> Option<Members> {
        // Addresses of their own: a port that is free on 127.0.0.1 may be a connection's by the time it is listened on.
        let net: [u8; 2] = rand::random();
        let hosts = [1, 2, 3].map(|last| IpAddr::from([127, net[0].max(1), net[1], last]));
        Members::start_at(hosts, certificates, None)
    }

    fn start_at(
        hosts: [IpAddr; MEMBERS],
        certificates: Option<Makes<'_>>,
        space: Option<String>,
    ) -> Option<Members> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            eprintln!("skipped: etcd is not installed (scripts/setup etcd)");
            return None;
        }
        let at = |member: usize, port| SocketAddr::from((hosts[member], port));
        let mut members = Members {
            folder: tempfile::tempdir().unwrap(),
            addresses: (0..MEMBERS)
                .map(|member| (at(member, 2379), at(member, 2380)))
                .collect(),
            running: (0..MEMBERS).map(|_| None).collect(),
            space,
            certificates: None,
        };
        members.certificates = certificates.map(|make| make(&hosts));
        (0..MEMBERS).for_each(|member| members.run(member));
        members.wait();
        Some(members)
    }

    pub(crate) fn clients(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|(client, _)| *client).collect()
    }

    pub(crate) fn run(&mut self, member: usize) {
        let (client, peer) = self.addresses[member];
        let cluster: Vec<String> = (self.addresses.iter().enumerate())
            .map(|(number, (_, peer))| format!("m{number}=http://{peer}"))
            .collect();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log(member))
            .unwrap();
        let scheme = if self.certificates.is_some() {
            "https"
        } else {
            "http"
        };
        let mut command = match &self.space {
            None => Command::new("etcd"),
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space, "etcd"]);
                command
            }
        };
        if let Some(folder) = &self.certificates {
            let file = |name: &str| folder.join(name).display().to_string();
            command
                .args([
                    "--cert-file",
                    &file("node.crt"),
                    "--key-file",
                    &file("node.key"),
                ])
                .args(["--trusted-ca-file", &file("ca.crt"), "--client-cert-auth"]);
        }
        let health = SocketAddr::from((client.ip(), HEALTH_PORT));
        let child = command
            .args(["--listen-metrics-urls", &format!("http://{health}")])
            .args(["--name", &format!("m{member}"), "--logger", "zap"])
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("m{member}")))
            .args(["--listen-client-urls", &format!("{scheme}://{client}")])
            .args(["--advertise-client-urls", &format!("{scheme}://{client}")])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &cluster.join(",")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running[member] = Some(child);
    }

    fn log(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("m{member}.log"))
    }

    /// Until all that run have a leader.
    pub(crate) fn wait(&self) {
        let began = Instant::now();
        for (member, (client, _)) in self.addresses.iter().enumerate() {
            while self.running[member].is_some()
                && !is_healthy(SocketAddr::from((client.ip(), HEALTH_PORT)))
            {
                assert!(
                    began.elapsed() < PATIENCE,
                    "member {member} of etcd is not ready:\n{}",
                    std::fs::read_to_string(self.log(member)).unwrap()
                );
                thread::sleep(Duration::from_millis(50));
            }
        }
    }

    pub(crate) fn stop(&mut self, member: usize) {
        let mut child = self.running[member].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn freeze(&self, member: usize) {
        self.signal(member, "STOP");
    }

    pub(crate) fn thaw(&self, member: usize) {
        self.signal(member, "CONT");
    }

    fn signal(&self, member: usize, signal: &str) {
        let id = self.running[member].as_ref().unwrap().id().to_string();
        let done = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(done.unwrap().success());
    }
}

fn is_healthy(client: SocketAddr) -> bool {
    let ask = || {
        let patience = Duration::from_secs(1);
        let mut stream = TcpStream::connect_timeout(&client, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        io::Result::Ok(answer.contains("\"health\":\"true\""))
    };
    ask().unwrap_or(false)
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in 0..MEMBERS {
            if self.running[member].is_some() {
                // One that is frozen ends, too.
                self.stop(member);
            }
        }
    }
}
