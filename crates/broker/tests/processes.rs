//! A broker with real programs: the client of docs/balloon.md, which the kernel counts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_balloon::{
    endpoint::Endpoint,
    message::{Demand, Hello},
    participant::{self, Connection, Participant},
};
use aerostat_broker::{
    admin::{Answer, Request, ask},
    core::{Account, ParticipantStatus, Settings, Status},
    files::FilesError,
    kernel,
    ledger::{Ledger, Owner},
    policy::Policy,
    serve::{Broker, Network, Options, ServeError},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker in this process.
struct Running {
    folder: tempfile::TempDir,
    settings: Settings,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

fn settings(budget_mib: u64) -> Settings {
    Settings {
        reserve: 0,
        heartbeat_ms: 100,
        lease_ms: 1_000,
        deadline_ms: 5_000,
        dwell_ms: 500,
        // Other programs of the machine may be short of memory.
        pressure_percent: 101.0,
        ..Settings::of_budget(budget_mib * MIB)
    }
}

impl Running {
    async fn start(settings: Settings) -> Running {
        let folder = tempfile::tempdir().unwrap();
        Self::start_on(folder, settings, None).await
    }

    async fn start_on(
        folder: tempfile::TempDir,
        settings: Settings,
        mut network: Option<Network>,
    ) -> Running {
        let started = Instant::now();
        let broker = loop {
            let options = Options {
                settings: settings.clone(),
                data: folder.path().join("data"),
                socket: folder.path().join("socket"),
                // A folder that is used for the first time is nobody else's.
                network: network.take(),
            };
            match Broker::open(options).await {
                // A program that another test starts just now has all that is open until it is loaded.
                Err(ServeError::Files(FilesError::Locked(_)) | ServeError::InUse(_))
                    if started.elapsed() < PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                broker => break broker.unwrap(),
            }
        };
        let stopping = CancellationToken::new();
        let task = tokio::spawn(broker.run(stopping.clone(), |_| ()));
        Running {
            folder,
            settings,
            stopping,
            task,
        }
    }

    /// Ends as a process does that is killed, and begins again on the same folder.
    async fn crash(self) -> Running {
        self.task.abort();
        // The connections end when the tasks that serve them do.
        self.stopping.cancel();
        let _ = self.task.await;
        // The lock goes with the aborted task.
        let Running {
            folder, settings, ..
        } = self;
        Self::start_on(folder, settings, None).await
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    async fn ask(&self, request: &Request) -> Answer {
        ask(&self.socket(), request).await.unwrap()
    }

    async fn status(&self) -> Status {
        match self.ask(&Request::Status).await {
            Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    async fn participant(&self, name: &str) -> Option<ParticipantStatus> {
        let participants = self.status().await.participants;
        participants.into_iter().find(|one| one.name == name)
    }

    /// Waits until a participant is as it should be.
    async fn until(&self, name: &str, what: &str, is: impl Fn(&ParticipantStatus) -> bool) {
        let started = Instant::now();
        loop {
            let status = self.status().await;
            let found = status.participants.iter().find(|one| one.name == name);
            if found.is_some_and(&is) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{name} {what}: {status:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a participant has about so much, as the kernel counts it.
    async fn has(&self, name: &str, mib: u64) {
        let near = |bytes: u64| bytes.abs_diff(mib * MIB) <= 16 * MIB;
        self.until(name, "has its memory", |one| {
            near(one.granted) && one.account.is_some_and(near) && one.state == "connected"
        })
        .await;
    }

    fn ledger(&self) -> Ledger {
        let file = self.folder.path().join("data/ledger.json");
        Ledger::parse(&std::fs::read(file).unwrap()).unwrap()
    }

    async fn stop(self) {
        let socket = self.socket();
        self.stopping.cancel();
        self.task.await.unwrap();
        assert!(!socket.exists());
    }

    fn socket_of(folder: &Path) -> PathBuf {
        folder.join("socket")
    }
}

/// The client of the documentation, in a process of its own.
struct Client {
    child: Child,
    /// Closed, it has the program say goodbye.
    stdin: Option<ChildStdin>,
    name: String,
}

/// The program in docs/balloon.md.
fn program() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/balloon.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page
        .split_once("```python\n")
        .expect("the page has a client");
    let (program, _) = rest.split_once("```").expect("the client ends");
    assert!(program.lines().count() < 100, "a client is short");
    program.to_owned()
}

impl Client {
    fn start(socket: &Path, name: &str, floor_mib: u64, ceiling_mib: u64) -> Client {
        let mut child = Command::new("python3")
            .args(["-c", &program(), name])
            .args([floor_mib.to_string(), ceiling_mib.to_string()])
            .arg(socket)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is there: scripts/setup needs it too");
        let stdin = child.stdin.take();
        let name = name.to_owned();
        Client { child, stdin, name }
    }

    fn wants(&mut self, mib: u64) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{mib}").unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn account(&self) -> u64 {
        let process = kernel::process(self.child.id());
        let owner = Owner {
            process,
            cgroup: None,
        };
        match account_of(&owner) {
            Account::Bytes(bytes) if process.is_some() => bytes,
            _ => 0,
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn account_of(owner: &Owner) -> Account {
    kernel::account(owner)
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_moves_to_whoever_wants_it_and_back() {
    let broker = Running::start(settings(400)).await;
    let socket = broker.socket();
    let mut a = Client::start(&socket, "a", 32, 1_000);
    let mut b = Client::start(&socket, "b", 32, 1_000);
    a.wants(300);
    b.wants(100);
    broker.has("a", 300).await;
    broker.has("b", 100).await;
    for _ in 0..2 {
        a.wants(80);
        b.wants(320);
        broker.has("b", 320).await;
        broker.has("a", 80).await;
        assert!(a.account() + b.account() <= 416 * MIB);
        a.wants(300);
        b.wants(100);
        broker.has("a", 300).await;
        broker.has("b", 100).await;
    }
    let audit = std::fs::read_to_string(broker.folder.path().join("data/audit.jsonl")).unwrap();
    for what in ["joined", "asked", "gave", "granted"] {
        let text = format!("\"what\":\"{what}\"");
        assert!(audit.contains(&text), "{what}: {audit}");
    }
    // One that says goodbye by closing its input, and one that is killed.
    drop(a.stdin.take());
    a.child.wait().unwrap();
    b.kill();
    let started = Instant::now();
    while !broker.status().await.participants.is_empty() {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(broker.status().await.free, 400 * MIB);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_program_keeps_its_memory_until_it_is_gone() {
    use rustix::process::Signal;
    let broker = Running::start(settings(300)).await;
    let mut a = Client::start(&broker.socket(), "a", 32, 1_000);
    let mut b = Client::start(&broker.socket(), "b", 32, 1_000);
    a.wants(200);
    b.wants(90);
    broker.has("a", 200).await;
    a.signal(Signal::STOP);
    b.wants(280);
    broker
        .until("a", "is lost", |one| one.state == "lost")
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (of_a, of_b) = (
        broker.participant("a").await.unwrap(),
        broker.participant("b").await.unwrap(),
    );
    assert!(
        of_a.granted >= 190 * MIB && of_b.granted <= 110 * MIB,
        "{of_a:?}, {of_b:?}"
    );
    // It goes on where it was.
    a.signal(Signal::CONT);
    broker
        .until("a", "is back", |one| one.state != "lost")
        .await;
    a.wants(40);
    broker
        .until("b", "has what a gave", |one| one.granted >= 240 * MIB)
        .await;
    a.signal(Signal::STOP);
    a.kill();
    broker.has("b", 280).await;
    assert!(broker.participant("a").await.is_none());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_pin_forget_and_choose() {
    let broker = Running::start(settings(300)).await;
    let mut a = Client::start(&broker.socket(), "a", 32, 1_000);
    a.wants(100);
    broker.has("a", 100).await;
    let pin = Request::Pin {
        name: "a".to_owned(),
        bytes: 60 * MIB,
    };
    assert_eq!(broker.ask(&pin).await, Answer::Ok);
    broker.has("a", 60).await;
    let name = || "a".to_owned();
    assert_eq!(
        broker.ask(&Request::Unpin { name: name() }).await,
        Answer::Ok
    );
    broker.has("a", 100).await;
    let refused = broker.ask(&Request::Forget { name: name() }).await;
    assert!(matches!(refused, Answer::Error { .. }), "{refused:?}");
    let policy = Policy::Static;
    assert_eq!(broker.ask(&Request::Policy { policy }).await, Answer::Ok);
    assert_eq!(broker.status().await.policy, Policy::Static);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_end_their_connection_alone() {
    let broker = Running::start(settings(300)).await;
    let mut a = Client::start(&broker.socket(), "a", 32, 1_000);
    a.wants(100);
    broker.has("a", 100).await;
    let long = [vec![b'x'; 100_000], vec![b'\n']].concat();
    let hello = r#"{"type":"hello","version":VERSION,"name":"NAME","instance":"1","floor":1,"ceiling":2,"used":1,"target":1}"#;
    let of = |version: &str, name: &str| {
        let text = hello.replace("VERSION", version).replace("NAME", name);
        format!("{text}\n").into_bytes()
    };
    for (bytes, expected) in [
        (b"\n".to_vec(), "invalid"),
        (b"{\"type\":\"bye\"}\n".to_vec(), "invalid"),
        (b"\xff\xfe\n".to_vec(), "invalid"),
        // Whoever is still writing may not see the answer.
        (long, ""),
        (of("2", "b"), "version"),
        (of("1", "a b"), "invalid"),
        (of("1", "a"), "name_in_use"),
        (b"{\"type\":\"status\"".to_vec(), ""),
        (Vec::new(), ""),
    ] {
        let mut stream = UnixStream::connect(broker.socket()).await.unwrap();
        // It may be refused before all of it is written.
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        let _ = tokio::time::timeout(PATIENCE, read)
            .await
            .expect("it is closed");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        assert!(answer.contains(expected), "{shown:?}: {answer:?}");
    }
    broker.has("a", 100).await;
    broker.stop().await;
}

/// A participant of this process, about a child's memory or none of this machine.
struct Plain {
    name: &'static str,
    seen: tokio::sync::watch::Sender<String>,
}

impl Participant for Plain {
    fn hello(&self) -> Hello {
        Hello {
            version: 0,
            token: None,
            name: self.name.to_owned(),
            kind: "test".to_owned(),
            instance: "1".to_owned(),
            pid: None,
            cgroup: None,
            floor: MIB,
            ceiling: 100 * MIB,
            used: 5 * MIB,
            target: 50 * MIB,
            gives_bytes_per_s: None,
            is_fixed: false,
        }
    }

    fn used(&self) -> u64 {
        5 * MIB
    }

    fn target(&self) -> u64 {
        50 * MIB
    }

    fn set_target(&self, _: u64) {}

    fn is_reached(&self) -> bool {
        true
    }

    fn demand(&self) -> Option<Demand> {
        None
    }

    fn connection(&self, connection: Connection<'_>) {
        let text = match connection {
            Connection::Welcomed(_) => "welcomed".to_owned(),
            Connection::Targeted { .. } => return,
            Connection::Lost(error) => error.to_string(),
        };
        self.seen.send_replace(text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_other_machines_need_the_certificate_and_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = folder.path().join("broker.pem");
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let network = Network {
        listener,
        tls: Arc::new(tls),
        token: "secret".to_owned(),
    };
    let broker = Running::start_on(folder, settings(300), Some(network)).await;
    let endpoint = Endpoint::parse(&address, Some(&certificate)).unwrap();
    let stopping = CancellationToken::new();
    let mut tasks = Vec::new();
    for (name, token, expected) in [
        ("right", Some("secret"), "welcomed"),
        (
            "wrong",
            Some("secre"),
            "the broker refused: the token is not the broker's",
        ),
        (
            "none",
            None,
            "the broker refused: the token is not the broker's",
        ),
    ] {
        let (seen, mut watched) = tokio::sync::watch::channel(String::new());
        let plain = Arc::new(Plain { name, seen });
        let run = participant::run(
            plain,
            endpoint.clone(),
            token.map(str::to_owned),
            stopping.clone(),
        );
        tasks.push(tokio::spawn(run));
        let wait = watched.wait_for(|seen| !seen.is_empty());
        let seen = tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap()
            .unwrap()
            .clone();
        assert_eq!(seen, expected, "{name}");
    }
    // Its memory is not this kernel's, so what it says counts.
    broker
        .until("right", "is known", |one| {
            one.account == Some(5 * MIB) && one.pid.is_none()
        })
        .await;
    // Nobody who comes over the network administrates.
    let names: Vec<String> = broker
        .status()
        .await
        .participants
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["right"]);
    stopping.cancel();
    for task in tasks {
        task.await.unwrap();
    }
    let started = Instant::now();
    while !broker.status().await.participants.is_empty() {
        assert!(started.elapsed() < PATIENCE, "it has said goodbye");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    broker.stop().await;
}

/// Programs that are killed, stopped and started, and a broker that dies, again and again: the kernel
/// never counts more than the budget. `ROUNDS=1000` for the long run.
#[tokio::test(flavor = "multi_thread")]
async fn no_fault_makes_programs_have_more_than_there_is() {
    use rustix::process::Signal;
    const BUDGET_MIB: u64 = 512;
    /// The interpreters beyond what they say that they have.
    const SLACK_MIB: u64 = 64;
    let rounds: u64 = std::env::var("ROUNDS").map_or(25, |rounds| rounds.parse().unwrap());
    let seed: u64 =
        std::env::var("SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut broker = Running::start(settings(BUDGET_MIB)).await;
    let socket = Running::socket_of(broker.folder.path());
    let start = |at: usize| Client::start(&socket, &format!("p{at}"), 32, 1_000);
    let mut clients: Vec<Client> = (0..3).map(start).collect();
    for round in 0..rounds {
        let at = rng.random_range(0..clients.len());
        match rng.random_range(0..6) {
            0 => {
                clients[at].kill();
                clients[at] = start(at);
            }
            1 => clients[at].signal(Signal::STOP),
            2 => broker = broker.crash().await,
            _ => {}
        }
        for client in &mut clients {
            client.wants(rng.random_range(32..512));
        }
        let until = Instant::now() + Duration::from_millis(rng.random_range(100..700));
        while Instant::now() < until {
            let used: u64 = clients.iter().map(Client::account).sum();
            let most = (BUDGET_MIB + SLACK_MIB) * MIB;
            assert!(
                used <= most,
                "SEED={seed}, round {round}: {} MiB",
                used / MIB
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        clients[at].signal(Signal::CONT);
        let ledger = broker.ledger();
        assert!(
            ledger.taken() <= ledger.budget,
            "SEED={seed}, round {round}"
        );
    }
    // In the end everybody goes on, and the ledger is what the kernel counts.
    for client in &mut clients {
        client.wants(100);
    }
    for client in &clients {
        let name = client.name.as_str();
        broker
            .until(name, "goes on", |one| {
                let used = one.account.unwrap_or(0);
                one.granted >= 100 * MIB && used.abs_diff(100 * MIB) <= 32 * MIB
            })
            .await;
    }
    broker.stop().await;
}
