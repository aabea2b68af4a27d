//! A participant beside a broker that a test plays.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::message::Target;

/// A program that gives back a little each time it is asked how far it is.
#[derive(Default)]
struct Program {
    used: AtomicU64,
    target: AtomicU64,
    /// What it gives back in a step; 0 where it gives nothing.
    step: AtomicU64,
    /// By how much its floor has risen.
    risen: AtomicU64,
    heard: Mutex<Vec<String>>,
}

impl Participant for Program {
    fn hello(&self) -> Hello {
        Hello {
            version: 0,
            token: None,
            name: "shop".to_owned(),
            kind: "test".to_owned(),
            instance: "1".to_owned(),
            pid: None,
            cgroup: None,
            floor: 10 + self.risen.load(Ordering::Relaxed),
            ceiling: 1000,
            used: self.used(),
            target: self.target(),
            gives_bytes_per_s: None,
            is_fixed: false,
        }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn target(&self) -> u64 {
        self.target.load(Ordering::Relaxed)
    }

    fn set_target(&self, bytes: u64) {
        self.target.store(bytes, Ordering::Relaxed);
    }

    fn is_reached(&self) -> bool {
        if self.used() > self.target() {
            let step = self.step.load(Ordering::Relaxed);
            self.used.fetch_sub(step, Ordering::Relaxed);
        }
        self.used() <= self.target()
    }

    fn demand(&self) -> Option<Demand> {
        None
    }

    fn connection(&self, connection: Connection<'_>) {
        let text = match connection {
            Connection::Welcomed(_) => "welcomed".to_owned(),
            Connection::Targeted { epoch } => format!("epoch {epoch}"),
            Connection::Lost(error) => error.to_string(),
        };
        self.heard.lock().unwrap().push(text);
    }
}

/// A broker that says what a test has it say.
struct Broker {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Broker {
    fn new() -> Broker {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        Broker { folder, listener }
    }

    fn start(&self, program: &Arc<Program>) -> (CancellationToken, JoinHandle<()>) {
        let stopping = CancellationToken::new();
        let endpoint = Endpoint::Unix(self.folder.path().join("socket"));
        let program: Arc<dyn Participant> = Arc::clone(program) as _;
        let token = Some("secret".to_owned());
        let running = tokio::spawn(run(program, endpoint, token, stopping.clone()));
        (stopping, running)
    }

    /// Welcomes whoever comes next.
    async fn welcome(&self, epoch: u64, bytes: u64) -> Peer {
        let mut peer = self.accept().await;
        peer.send(FromBroker::Welcome(Welcome {
            version: VERSION,
            epoch,
            bytes,
            heartbeat_ms: 20,
            lease_ms: 2_000,
        }))
        .await;
        peer
    }

    async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut peer = Peer(BufReader::new(stream));
        match peer.next().await {
            Some(FromParticipant::Hello(hello)) => {
                assert_eq!(hello.version, VERSION);
                assert_eq!(hello.token.as_deref(), Some("secret"));
            }
            other => panic!("{other:?}"),
        }
        peer
    }
}

struct Peer(BufReader<UnixStream>);

impl Peer {
    async fn send(&mut self, message: FromBroker) {
        line::write(self.0.get_mut(), &message).await.unwrap();
    }

    async fn target(&mut self, epoch: u64, bytes: u64, deadline_ms: u64) {
        let target = Target {
            epoch,
            bytes,
            deadline_ms,
        };
        self.send(FromBroker::Target(target)).await;
    }

    async fn next(&mut self) -> Option<FromParticipant> {
        let read = timeout(Duration::from_secs(30), line::read(&mut self.0));
        read.await.unwrap().unwrap()
    }

    /// The next message that is no heartbeat.
    async fn answer(&mut self) -> Option<FromParticipant> {
        loop {
            match self.next().await {
                Some(FromParticipant::Heartbeat(_)) => {}
                other => return other,
            }
        }
    }

    async fn done(&mut self, epoch: u64, target: u64) -> u64 {
        loop {
            match self.answer().await {
                Some(FromParticipant::Progress(report)) => assert_eq!(report.epoch, epoch),
                Some(FromParticipant::Done(report)) => {
                    assert_eq!((report.epoch, report.target), (epoch, target));
                    return report.used;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn targets_are_applied_once_and_in_order() {
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    program.used.store(100, Ordering::Relaxed);
    program.step.store(7, Ordering::Relaxed);
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(5, 200).await;
    assert_eq!(peer.done(5, 200).await, 100);
    peer.target(6, 50, 60_000).await;
    assert!(peer.done(6, 50).await <= 50);
    // The same again is answered again; an older one is not.
    peer.target(6, 50, 60_000).await;
    assert!(peer.done(6, 50).await <= 50);
    peer.target(4, 900, 60_000).await;
    peer.target(7, 60, 60_000).await;
    peer.done(7, 60).await;
    assert_eq!(program.target(), 60);
    stopping.cancel();
    assert_eq!(peer.answer().await, Some(FromParticipant::Bye));
    assert_eq!(peer.answer().await, None);
    running.await.unwrap();
    let heard = program.heard.lock().unwrap().join(", ");
    assert_eq!(heard, "welcomed, epoch 5, epoch 6, epoch 7");
}

#[tokio::test]
async fn limits_are_told_when_they_change() {
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(5, 200).await;
    peer.done(5, 200).await;
    program.risen.store(90, Ordering::Relaxed);
    let limits = |floor| {
        FromParticipant::Limits(Limits {
            floor,
            ceiling: 1000,
            is_fixed: false,
        })
    };
    assert_eq!(peer.answer().await, Some(limits(100)));
    // Limits that cannot be are not told.
    program.risen.store(2_000, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(
            peer.next().await,
            Some(FromParticipant::Heartbeat(_))
        ));
    }
    program.risen.store(40, Ordering::Relaxed);
    assert_eq!(peer.answer().await, Some(limits(50)));
    stopping.cancel();
    assert_eq!(peer.answer().await, Some(FromParticipant::Bye));
    running.await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_given_is_told_at_the_deadline() {
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    program.used.store(100, Ordering::Relaxed);
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(1, 200).await;
    peer.done(1, 200).await;
    peer.target(2, 50, 300).await;
    let progress = peer.answer().await;
    assert!(
        matches!(progress, Some(FromParticipant::Progress(_))),
        "{progress:?}"
    );
    assert_eq!(peer.done(2, 50).await, 100);
    stopping.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_lost_broker_is_looked_for_and_its_last_target_kept() {
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(9, 200).await;
    peer.done(9, 200).await;
    drop(peer);
    let mut peer = broker.accept().await;
    assert_eq!(program.target(), 200);
    let refused = Refused {
        code: RefusedCode::NoRoom,
        message: "later".to_owned(),
    };
    peer.send(FromBroker::Refused(refused)).await;
    drop(peer);
    // A broker that has lost its books counts epochs anew.
    let mut peer = broker.welcome(1, 300).await;
    peer.done(1, 300).await;
    stopping.cancel();
    running.await.unwrap();
    let heard = program.heard.lock().unwrap().join(", ");
    assert!(heard.contains("the broker refused: later"), "{heard}");
    assert!(heard.ends_with("welcomed, epoch 1"), "{heard}");
}

#[tokio::test]
async fn a_silent_broker_is_left() {
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(1, 200).await;
    peer.done(1, 200).await;
    // It says nothing for its lease.
    let mut again = broker.welcome(1, 200).await;
    again.done(1, 200).await;
    stopping.cancel();
    running.await.unwrap();
    let heard = program.heard.lock().unwrap().join(", ");
    assert!(heard.contains("the broker is silent"), "{heard}");
}

#[tokio::test]
async fn garbage_from_a_broker_ends_the_connection_alone() {
    use tokio::io::AsyncWriteExt;
    let (broker, program) = (Broker::new(), Arc::new(Program::default()));
    let (stopping, running) = broker.start(&program);
    let mut peer = broker.welcome(1, 200).await;
    peer.done(1, 200).await;
    peer.0
        .get_mut()
        .write_all(b"{\"type\": 7}\n")
        .await
        .unwrap();
    let mut peer = broker.welcome(2, 300).await;
    peer.done(2, 300).await;
    stopping.cancel();
    running.await.unwrap();
    assert_eq!(program.target(), 300);
}
