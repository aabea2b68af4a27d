//! Distributing connections among threads.
//!
//! A connection stays with one thread, which reads its messages, runs short statements and sends
//! the answers. In a runtime with several threads, each message that arrives while others are
//! handled would wake another thread to take its task over, and waking a thread costs more than
//! handling the message.

use std::{io, sync::Arc};

use tokio::{runtime::Handle, task::JoinSet};

use crate::listen::{Parked, Socket};

/// The threads that serve connections.
pub(crate) struct Threads(Vec<Thread>);

/// A runtime, and one holder for each connection that it serves.
struct Thread {
    runtime: Handle,
    connections: Arc<()>,
}

impl Threads {
    /// Threads for these runtimes; without any, for the caller's runtime.
    pub(crate) fn new(runtimes: &[Handle]) -> Self {
        let caller = runtimes.is_empty().then(Handle::current);
        let thread = |runtime: &Handle| Thread {
            runtime: runtime.clone(),
            connections: Arc::default(),
        };
        Self(runtimes.iter().chain(&caller).map(thread).collect())
    }

    /// Serves a client on the thread that has the fewest.
    ///
    /// # Errors
    /// The socket cannot be taken from the runtime that accepted it.
    pub(crate) fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        socket: Socket,
        connections: &mut JoinSet<()>,
        serve: impl FnOnce(Socket) -> F + Send + 'static,
    ) -> io::Result<()> {
        let fewest = |thread: &&Thread| Arc::strong_count(&thread.connections);
        let Some(thread) = self.0.iter().min_by_key(fewest) else {
            unreachable!("there is a thread, if but the caller's");
        };
        let (parked, place) = (socket.park()?, Arc::clone(&thread.connections));
        let served = async move {
            match Parked::resume(parked) {
                Ok(socket) => serve(socket).await,
                Err(error) => tracing::warn!(%error, "cannot serve a connection"),
            }
            drop(place);
        };
        connections.spawn_on(served, &thread.runtime);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{future, thread};

    use tokio::{
        net::{TcpListener, TcpStream},
        runtime::Builder,
        sync::{mpsc, watch},
    };

    use super::*;
    use crate::listen::Listeners;

    /// A runtime of one thread, with the thread's name.
    fn runtime(name: &str) -> Handle {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let run = move || runtime.block_on(future::pending::<()>());
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .unwrap();
        handle
    }

    #[tokio::test]
    async fn clients_go_where_the_fewest_are() {
        let threads = Threads::new(&[runtime("one"), runtime("two")]);
        let listeners = Listeners::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (served, mut names) = mpsc::unbounded_channel();
        let mut connections = JoinSet::new();
        let mut clients = Vec::new();
        // All clients of the thread with this name may leave.
        let (leave, left) = watch::channel("");
        let mut connect = async |connections: &mut JoinSet<()>| {
            let address = listeners.tcp.local_addr().unwrap();
            clients.push(TcpStream::connect(address).await.unwrap());
            let socket = listeners.accept().await.unwrap().socket;
            let (served, mut left) = (served.clone(), left.clone());
            let serve = move |socket| async move {
                let name = thread::current().name().unwrap().to_owned();
                served.send(name.clone()).unwrap();
                // When the test ends, the sender is gone.
                let _ = left.wait_for(|who| **who == name).await;
                drop::<Socket>(socket);
            };
            threads.serve(socket, connections, serve).unwrap();
            names.recv().await.unwrap()
        };
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(connect(&mut connections).await);
        }
        all.sort();
        assert_eq!(all, ["one", "one", "two", "two"]);
        leave.send_replace("two");
        for _ in 0..2 {
            connections.join_next().await.unwrap().unwrap();
        }
        leave.send_replace("");
        for _ in 0..2 {
            assert_eq!(connect(&mut connections).await, "two");
        }
    }
}
