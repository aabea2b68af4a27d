//! Requests to the members of an etcd cluster, by its JSON gateway.

use std::{
    fmt, io,
    io::{BufRead, BufReader, Read},
    str::FromStr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use aerostat_types::{Clock, SystemClock};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use ureq::{Agent, unversioned::transport::DefaultConnector};

use crate::{Access, EtcdError, access::User, addresses::Addresses};

/// How long a member may take to take a connection, and to answer.
const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(2);

/// How long all of them may take together.
const PATIENCE: Duration = Duration::from_secs(6);

/// How soon they are asked again where none answered.
const AGAIN: Duration = Duration::from_millis(50);

/// An answer that is larger is none of etcd's, which takes 1.5 MB by itself.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// As much is shown of an answer that is not etcd's.
const SAID_BYTES: usize = 200;

/// How etcd says what went wrong (`google.rpc.Code`) that will go wrong again.
const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const RESOURCE_EXHAUSTED: i64 = 8;
const OUT_OF_RANGE: i64 = 11;
const UNAUTHENTICATED: i64 = 16;

/// And how its gateway says that.
const UNAUTHORIZED: u16 = 401;

/// Where the members of an etcd cluster are, and under which name there is something of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    members: Vec<String>,
    name: String,
}

impl Endpoints {
    /// What the name of one begins with.
    pub const SCHEME: &str = "etcd://";

    /// The key of something of ours.
    pub(crate) fn key(&self, of: &str) -> String {
        format!("/aerostat/{}/{of}", self.name)
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}/{}",
            Self::SCHEME,
            self.members.join(","),
            self.name
        )
    }
}

impl FromStr for Endpoints {
    type Err = EtcdError;

    fn from_str(text: &str) -> Result<Endpoints, EtcdError> {
        let odd = || EtcdError::Name(text.to_owned());
        let rest = text.strip_prefix(Self::SCHEME).ok_or_else(odd)?;
        let (members, name) = rest.split_once('/').unwrap_or((rest, "default"));
        let is_member = |member: &str| {
            let port = member
                .rsplit_once(':')
                .map(|(host, port)| (host, port.parse::<u16>()));
            let has_port = matches!(port, Some((host, Ok(1..))) if !host.is_empty());
            has_port && !member.contains(['@', '?', '#', ' ', '\\'])
        };
        let is_named = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        let is_sound = members.iter().all(|member| is_member(member))
            && !name.is_empty()
            && name.chars().all(is_named);
        match is_sound {
            true => Ok(Endpoints {
                members,
                name: name.to_owned(),
            }),
            false => Err(odd()),
        }
    }
}

/// Asks whichever member answers.
pub(crate) struct Gateway {
    agent: Agent,
    /// What comes before a member's address.
    scheme: &'static str,
    user: Option<User>,
    /// By which members know the user, as given last. It ends.
    token: Mutex<Option<String>>,
    members: Vec<String>,
    /// The one that has answered last.
    first: AtomicUsize,
    /// Whether nobody answered who was asked last.
    is_silent: AtomicBool,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.members).finish()
    }
}

/// Why one member has not done it.
enum Failed {
    /// Another may do it. This one may have done it, too, or do it later, if it was asked.
    Try { why: String, is_asked: bool },
    /// It is not known who asks.
    Unknown(String),
    /// It will not be done.
    Final(EtcdError),
}

impl Gateway {
    pub(crate) fn new(endpoints: &Endpoints, access: &Access) -> Gateway {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .proxy(None)
            .max_idle_connections_per_host(4);
        if let Some(tls) = &access.tls {
            config = config.tls_config(tls.clone()).https_only(true);
        }
        let config = config.build();
        Gateway {
            scheme: if access.tls.is_some() {
                "https"
            } else {
                "http"
            },
            user: access.user.clone(),
            token: Mutex::default(),
            agent: Agent::with_parts(config, DefaultConnector::default(), Addresses),
            members: endpoints.members.clone(),
            first: AtomicUsize::new(0),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Asks until somebody answers, and says whether nobody else may have done it, or do it later. While nobody
    /// answers all are asked once.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<(T, bool), EtcdError> {
        let request =
            serde_json::to_vec(request).map_err(|error| EtcdError::Odd(error.to_string()))?;
        let until = SystemClock.now() + PATIENCE;
        let was_silent = self.is_silent.load(Ordering::Relaxed);
        let (mut is_only, mut said, mut turns) = (true, None, 0);
        loop {
            let at = self.first.load(Ordering::Relaxed) % self.members.len();
            let asked = self.ask_as_user(&self.members[at], path, &request, until);
            let why = match asked {
                Ok(answer) => {
                    self.is_silent.store(false, Ordering::Relaxed);
                    return Ok((answer, is_only));
                }
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Unknown(why)) => return Err(EtcdError::Refused(why)),
                Err(Failed::Try { why, is_asked }) => {
                    is_only &= !is_asked;
                    why
                }
            };
            tracing::debug!(member = self.members[at], why, "etcd does not answer");
            // Unless somebody has found one that answers.
            let next = (at + 1) % self.members.len();
            let _ = self
                .first
                .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
            // What comes last is that the time is over.
            let said = said.get_or_insert_with(|| format!("{}: {why}", self.members[at]));
            turns += 1;
            let is_round = turns % self.members.len() == 0;
            if SystemClock.now() >= until || is_round && was_silent {
                self.is_silent.store(true, Ordering::Relaxed);
                return Err(EtcdError::Unavailable(said.clone()));
            }
            if is_round {
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// Asks by the token that there is, and by another one if that has ended.
    fn ask_as_user<T: DeserializeOwned>(
        &self,
        member: &str,
        path: &str,
        request: &[u8],
        until: Instant,
    ) -> Result<T, Failed> {
        let token = self.token(member, until)?;
        match self.ask_one(member, path, request, (token.as_deref(), until)) {
            Err(Failed::Unknown(why)) if token.is_some() => {
                tracing::debug!(member, why, "etcd's token has ended");
                self.forget(token);
                let token = self.token(member, until)?;
                self.ask_one(member, path, request, (token.as_deref(), until))
            }
            asked => asked,
        }
        .map_err(|failed| match failed {
            Failed::Unknown(why) => Failed::Final(EtcdError::Refused(why)),
            failed => failed,
        })
    }

    /// By what members know the user, if there is one.
    fn token(&self, member: &str, until: Instant) -> Result<Option<String>, Failed> {
        #[derive(serde::Deserialize)]
        struct Given {
            token: String,
        }
        let Some(User { name, password }) = &self.user else {
            return Ok(None);
        };
        // Those who come meanwhile wait for this one's, but not for longer than they have.
        let Some(mut known) = self.token.try_lock_until(until) else {
            let why = "others wait for a token".to_owned();
            return Err(Failed::Try {
                why,
                is_asked: false,
            });
        };
        if known.is_none() {
            if SystemClock.now() >= until {
                let why = "no token in time".to_owned();
                return Err(Failed::Try {
                    why,
                    is_asked: false,
                });
            }
            let request = serde_json::json!({ "name": name, "password": password });
            let request = request.to_string();
            let path = "/v3/auth/authenticate";
            let given: Given = self.ask_one(member, path, request.as_bytes(), (None, until))?;
            *known = Some(given.token);
        }
        Ok(known.clone())
    }

    /// The token has ended, unless another has come since.
    fn forget(&self, ended: Option<String>) {
        let mut known = self.token.lock();
        if *known == ended {
            *known = None;
        }
    }

    fn ask_one<T: DeserializeOwned>(
        &self,
        member: &str,
        path: &str,
        request: &[u8],
        (token, until): (Option<&str>, Instant),
    ) -> Result<T, Failed> {
        let left = until.saturating_duration_since(SystemClock.now());
        let mut asking = self.agent.post(format!("{}://{member}{path}", self.scheme));
        if let Some(token) = token {
            asking = asking.header("authorization", token);
        }
        let asked = asking
            .config()
            .timeout_global(Some(left.min(ANSWER)))
            .build()
            .content_type("application/json")
            .send(request);
        let lost = |error: ureq::Error| {
            let is_asked = match &error {
                ureq::Error::Io(error) => error.kind() != io::ErrorKind::ConnectionRefused,
                ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => false,
                _ => true,
            };
            let why = error.to_string();
            Failed::Try { why, is_asked }
        };
        let mut answer = asked.map_err(lost)?;
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let body = body.read_to_vec().map_err(lost)?;
        if status.is_success() {
            let answer = serde_json::from_slice(&body);
            return answer.map_err(|error| Failed::Final(EtcdError::Odd(error.to_string())));
        }
        Err(failed(status.as_u16(), &body))
    }

    /// Waits until something is put at a key at a revision or later, or so much time has passed.
    pub(crate) fn await_put(
        &self,
        request: &impl Serialize,
        at_most: Duration,
    ) -> Result<(), EtcdError> {
        let at = self.first.load(Ordering::Relaxed) % self.members.len();
        let unavailable = |error: ureq::Error| {
            // The next who asks asks another.
            self.first
                .store((at + 1) % self.members.len(), Ordering::Relaxed);
            EtcdError::Unavailable(format!("{}: {error}", self.members[at]))
        };
        let request =
            serde_json::to_vec(request).map_err(|error| EtcdError::Odd(error.to_string()))?;
        let until = SystemClock.now() + ANSWER;
        let token = self.token(&self.members[at], until);
        // Whoever asks next hears what is wrong.
        let token = token.map_err(|_| EtcdError::Unavailable("a watch".to_owned()))?;
        let mut asking = self
            .agent
            .post(format!("{}://{}/v3/watch", self.scheme, self.members[at]));
        if let Some(token) = &token {
            asking = asking.header("authorization", token);
        }
        let asked = asking
            .config()
            .timeout_recv_response(Some(ANSWER))
            .timeout_recv_body(Some(at_most))
            .build()
            .content_type("application/json")
            .send(&request[..]);
        let answer = asked.map_err(unavailable)?;
        if !answer.status().is_success() {
            if answer.status() == UNAUTHORIZED {
                self.forget(token);
            }
            return Err(EtcdError::Refused(format!("a watch: {}", answer.status())));
        }
        let body = answer.into_body().into_reader().take(ANSWER_BYTES_MAX);
        for line in BufReader::new(body).lines() {
            match line {
                Ok(line) if line.contains("\"events\"") || line.contains("\"canceled\"") => {
                    return Ok(());
                }
                Ok(_) => {}
                // The time is over, or the member is.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}

fn failed(status: u16, body: &[u8]) -> Failed {
    #[derive(serde::Deserialize)]
    struct Said {
        #[serde(default)]
        message: String,
        #[serde(default)]
        code: i64,
    }
    let said = serde_json::from_slice::<Said>(body);
    let (message, code) = match said {
        Ok(said) => (said.message, said.code),
        Err(_) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(SAID_BYTES)]);
            (format!("status {status}: {}", text.trim()), 0)
        }
    };
    if message.contains("CommonName of client") {
        // Where it has users, a certificate with a common name would be one of them, but not by the gateway.
        let why = "it has users, so the certificate in client.crt must have no common name";
        return Failed::Final(EtcdError::Refused(why.to_owned()));
    }
    match code {
        // A user where there are none.
        _ if message.contains("authentication is not enabled") => {
            Failed::Final(EtcdError::Refused(message))
        }
        // What it has no room for, but for a moment.
        RESOURCE_EXHAUSTED if message.contains("too many requests") => Failed::Try {
            why: message,
            is_asked: false,
        },
        UNAUTHENTICATED => Failed::Unknown(message),
        // A member that has not heard of a change of users yet, or whose tokens another has not given.
        INVALID_ARGUMENT if message.contains("revision of auth store is old") => {
            Failed::Unknown(message)
        }
        INVALID_ARGUMENT | PERMISSION_DENIED | RESOURCE_EXHAUSTED | OUT_OF_RANGE => {
            Failed::Final(EtcdError::Refused(message))
        }
        _ => Failed::Try {
            why: message,
            is_asked: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_not_be_done_is_not_asked_for_again() {
        let answers = [
            (
                r#"{"error":"e","message":"request is too large","code":3}"#,
                true,
            ),
            (
                r#"{"error":"e","message":"mvcc: database space exceeded","code":8}"#,
                true,
            ),
            (
                r#"{"message":"etcdserver: too many requests","code":8}"#,
                false,
            ),
            (r#"{"error":"e","message":"no leader","code":14}"#, false),
            ("<html>", false),
        ];
        for (body, is_final) in answers {
            let failed = failed(500, body.as_bytes());
            assert_eq!(matches!(failed, Failed::Final(_)), is_final, "{body}");
        }
    }

    #[test]
    fn clusters_are_named() {
        let one: Endpoints = "etcd://127.0.0.1:2379,b.example:2379/house"
            .parse()
            .unwrap();
        assert_eq!(one.members, ["127.0.0.1:2379", "b.example:2379"]);
        assert_eq!(one.key("nodes"), "/aerostat/house/nodes");
        assert_eq!(
            one.to_string(),
            "etcd://127.0.0.1:2379,b.example:2379/house"
        );
        let one: Endpoints = "etcd://[::1]:2379".parse().unwrap();
        assert_eq!(one.key("nodes"), "/aerostat/default/nodes");
        for odd in [
            "",
            "etcd://",
            "etcd:///name",
            "etcd://host",
            "etcd://host:0/x",
            "etcd://host:70000/x",
            "etcd://a:1,/x",
            "etcd://user@a:1/x",
            "etcd://a:1/",
            "etcd://a:1/x/y",
            "etcd://a:1/x?ca=y",
            "http://a:1/x",
        ] {
            assert!(odd.parse::<Endpoints>().is_err(), "{odd}");
        }
    }
}
