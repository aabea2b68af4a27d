//! QEMU's monitor by QMP: a line of JSON for each command, answer and event.
//!
//! ```text
//!  ◄ {"QMP": {…}}                          the greeting
//!  ► {"execute": "qmp_capabilities"}       ◄ {"return": {}}
//!  ► {"execute": "query-balloon"}          ◄ {"event": …}   ◄ {"return": {"actual": 1073741824}}
//!                                          ◄ {"error": {"class": "DeviceNotActive", "desc": …}}
//! ```

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    time::timeout,
};

use super::{
    VmOptions,
    facts::{Facts, Guest},
};
use crate::error::AdapterError;

/// How long an answer may take. A monitor whose only client is another one does not greet.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// How often a guest is asked for statistics, in seconds.
const STATISTICS_EVERY_S: u64 = 1;

/// Statistics that are older say nothing of the guest.
const STATISTICS_AGE_MAX: Duration = Duration::from_secs(10);

/// A monitor. After an error that is not [`AdapterError::Refused`] it is of no more use.
pub(crate) struct Monitor {
    stream: BufReader<UnixStream>,
    /// The balloon in QEMU's tree of objects.
    device: String,
    size_max: u64,
}

impl Monitor {
    pub(crate) async fn open(options: &VmOptions) -> Result<Monitor, AdapterError> {
        let stream = UnixStream::connect(&options.qmp).await?;
        let mut monitor = Monitor {
            stream: BufReader::new(stream),
            device: String::new(),
            size_max: 0,
        };
        let greeting = timeout(ANSWER_MAX, monitor.line()).await;
        let greeting = greeting.map_err(|_| AdapterError::Silent)??;
        if greeting.get("QMP").is_none() {
            return Err(AdapterError::Answer("greeting of QMP"));
        }
        monitor.command("qmp_capabilities", json!({})).await?;
        let summary = monitor
            .command("query-memory-size-summary", json!({}))
            .await?;
        let plugged = bytes(&summary, "plugged-memory").unwrap_or(0);
        monitor.size_max = bytes(&summary, "base-memory")
            .and_then(|base| base.checked_add(plugged))
            .ok_or(AdapterError::Answer("size of the guest"))?;
        monitor.device = match &options.device {
            Some(device) => device.clone(),
            None => monitor.find_balloon().await?,
        };
        let polling = json!({
            "path": monitor.device,
            "property": "guest-stats-polling-interval",
            "value": STATISTICS_EVERY_S,
        });
        monitor.command("qom-set", polling).await?;
        Ok(monitor)
    }

    /// Ends the connection, so that the monitor takes another.
    pub(crate) async fn close(&mut self) {
        // It may be broken already.
        let _ = self.stream.get_mut().shutdown().await;
    }

    /// The process on the other side, if the system tells.
    pub(crate) fn pid(&self) -> Option<u32> {
        let pid = self.stream.get_ref().peer_cred().ok()?.pid()?;
        u32::try_from(pid).ok().filter(|pid| *pid > 0)
    }

    /// The guest as it is now.
    pub(crate) async fn facts(&mut self) -> Result<Facts, AdapterError> {
        let balloon = self.command("query-balloon", json!({})).await?;
        let size = bytes(&balloon, "actual").ok_or(AdapterError::Answer("size of the balloon"))?;
        let asked = json!({ "path": self.device, "property": "guest-stats" });
        let statistics = self.command("qom-get", asked).await?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Facts {
            size,
            size_max: self.size_max.max(size),
            guest: guest(&statistics, now.unwrap_or_default()),
        })
    }

    /// Has the balloon leave the guest so much.
    pub(crate) async fn set_size(&mut self, bytes: u64) -> Result<(), AdapterError> {
        let value = json!({ "value": bytes.min(self.size_max) });
        self.command("balloon", value).await?;
        Ok(())
    }

    async fn find_balloon(&mut self) -> Result<String, AdapterError> {
        for folder in ["/machine/peripheral", "/machine/peripheral-anon"] {
            let children = self.command("qom-list", json!({ "path": folder })).await?;
            if let Some(name) = balloon_of(&children) {
                return Ok(format!("{folder}/{name}"));
            }
        }
        Err(AdapterError::Answer("virtio-balloon device"))
    }

    async fn command(&mut self, name: &str, arguments: Value) -> Result<Value, AdapterError> {
        let exchange = async {
            let line = format!("{}\n", json!({ "execute": name, "arguments": arguments }));
            self.stream.get_mut().write_all(line.as_bytes()).await?;
            loop {
                let mut answer = self.line().await?;
                if let Some(value) = answer.get_mut("return") {
                    return Ok(value.take());
                }
                if let Some(error) = answer.get("error") {
                    let text = error.get("desc").and_then(Value::as_str);
                    return Err(AdapterError::Refused {
                        what: name.to_owned(),
                        answer: text.unwrap_or("no description").to_owned(),
                    });
                }
                // An event, of which none is of interest.
            }
        };
        timeout(ANSWER_MAX, exchange)
            .await
            .map_err(|_| AdapterError::Silent)?
    }

    async fn line(&mut self) -> Result<Value, AdapterError> {
        let mut line = String::new();
        (&mut self.stream)
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .await?;
        if !line.ends_with('\n') {
            return Err(AdapterError::Answer("end of a line"));
        }
        serde_json::from_str(&line).map_err(|_| AdapterError::Answer("line of JSON"))
    }
}

/// An amount, unless it is missing or stands for one that is not known.
fn bytes(value: &Value, name: &str) -> Option<u64> {
    value.get(name)?.as_u64().filter(|bytes| *bytes < u64::MAX)
}

/// The name of a balloon among the children of a folder of objects.
fn balloon_of(children: &Value) -> Option<&str> {
    children.as_array()?.iter().find_map(|child| {
        let kind = child.get("type")?.as_str()?;
        let name = child.get("name")?.as_str()?;
        kind.starts_with("child<virtio-balloon").then_some(name)
    })
}

/// What the guest has told, if that is not long ago.
fn guest(statistics: &Value, now: Duration) -> Option<Guest> {
    let told_at = Duration::from_secs(bytes(statistics, "last-update")?);
    if told_at.is_zero() || now.saturating_sub(told_at) > STATISTICS_AGE_MAX {
        return None;
    }
    let of = |name| bytes(statistics.get("stats")?, name);
    let free = of("stat-free-memory")?;
    Some(Guest {
        free,
        // Kernels before 4.6 do not tell.
        available: of("stat-available-memory").unwrap_or(free),
        major_faults: of("stat-major-faults").unwrap_or(0) as f64,
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000);

    fn told(at: u64) -> Value {
        json!({ "last-update": at, "stats": {
            "stat-free-memory": 100, "stat-available-memory": 300, "stat-major-faults": 7,
            "stat-swap-in": u64::MAX,
        } })
    }

    #[test]
    fn statistics_count_while_they_are_new() {
        let expected = Guest {
            free: 100,
            available: 300,
            major_faults: 7.0,
        };
        assert_eq!(guest(&told(999_995), NOW), Some(expected));
        assert_eq!(guest(&told(999_000), NOW), None);
        assert_eq!(guest(&told(0), NOW), None);
        let without = json!({ "last-update": 999_999, "stats": { "stat-free-memory": u64::MAX } });
        assert_eq!(guest(&without, NOW), None);
        assert_eq!(guest(&json!({}), NOW), None);
        let old = json!({ "last-update": 999_999, "stats": { "stat-free-memory": 50 } });
        assert_eq!(guest(&old, NOW).unwrap().available, 50);
    }

    #[test]
    fn a_balloon_is_found_among_other_devices() {
        let children = json!([
            { "name": "type", "type": "string" },
            { "name": "disk0", "type": "child<virtio-blk-pci>" },
            { "name": "device[1]", "type": "child<virtio-balloon-pci>" },
        ]);
        assert_eq!(balloon_of(&children), Some("device[1]"));
        assert_eq!(balloon_of(&json!([])), None);
        assert_eq!(balloon_of(&json!({ "class": 1 })), None);
    }

    /// A monitor that says these lines and is gone.
    async fn opened(lines: &'static str) -> AdapterError {
        let folder = tempfile::tempdir().unwrap();
        let qmp = folder.path().join("qmp");
        let listener = UnixListener::bind(&qmp).unwrap();
        let saying = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(lines.as_bytes()).await.unwrap();
        });
        let options = VmOptions {
            qmp,
            pid: None,
            device: None,
            miss_ms: None,
        };
        let error = Monitor::open(&options).await.err().unwrap();
        saying.await.unwrap();
        error
    }

    #[tokio::test]
    async fn what_is_no_monitor_is_told_apart() {
        let error = opened("220 mail.example.org\n").await;
        assert!(matches!(error, AdapterError::Answer("line of JSON")));
        let error = opened("{}\n").await;
        assert!(matches!(error, AdapterError::Answer("greeting of QMP")));
        let error = opened("{\"QMP\": ").await;
        assert!(matches!(error, AdapterError::Answer("end of a line")));
        let refusing = "{\"QMP\": {}}\n{\"event\": \"STOP\"}\n{\"error\": {\"desc\": \"no\"}}\n";
        match opened(refusing).await {
            AdapterError::Refused { what, answer } => {
                assert_eq!((&*what, &*answer), ("qmp_capabilities", "no"));
            }
            // The other side was gone before the command was sent.
            AdapterError::Io(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
