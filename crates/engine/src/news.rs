//! What other nodes have made of roles and databases, for whoever cannot wait until this one hears of it in time.

use std::time::{Duration, Instant};

use tokio::{sync::Mutex, time::timeout};

/// How long whoever asks waits for what the nodes share.
const HEAR_MAX: Duration = Duration::from_secs(2);

/// Who asks at once shares an answer: clients of roles that do not exist cost what nodes share no more than one does.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// When the last answer was asked for.
    asked: Mutex<Option<Instant>>,
}

impl News {
    /// Waits until `follow` has been done, by this task or another's, since this was called; or for two seconds.
    pub(crate) async fn hear<F: Future<Output = ()>>(&self, follow: impl FnOnce() -> F) {
        let called = Instant::now();
        let heard = async {
            let mut asked = self.asked.lock().await;
            if asked.is_some_and(|asked| asked >= called) {
                return;
            }
            let asks = Instant::now();
            follow().await;
            *asked = Some(asks);
        };
        let _ = timeout(HEAR_MAX, heard).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn those_who_ask_at_once_share_an_answer_that_is_no_older() {
        let (news, answers) = (News::default(), AtomicUsize::new(0));
        let answer = || async {
            sleep(Duration::from_millis(100)).await;
            answers.fetch_add(1, Ordering::SeqCst);
        };
        // The first was asked before the others came, so it may lack what they ask for.
        join_all((0..50).map(|_| news.hear(answer))).await;
        let once = answers.load(Ordering::SeqCst);
        assert!((1..=2).contains(&once), "{once}");
        news.hear(answer).await;
        assert_eq!(answers.load(Ordering::SeqCst), once + 1);
    }

    #[tokio::test]
    async fn nobody_waits_for_ever() {
        let news = News::default();
        let all = join_all((0..10).map(|_| news.hear(pending)));
        timeout(20 * HEAR_MAX, all).await.unwrap();
    }
}
