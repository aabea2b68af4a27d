//! Statements to a server, and their answers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mysql_async::{Conn, OptsBuilder, prelude::Queryable};
use tokio::{
    net::UnixStream,
    time::{sleep, timeout},
};

use super::{MariaDbOptions, plan::Limits};
use crate::{error::AdapterError, options::Address};

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How long a server may resize in the background after the statement has returned.
const RESIZE_MAX: Duration = Duration::from_secs(120);

/// How often the size of the data is asked, of files and of statistics.
const FILES_EVERY: Duration = Duration::from_secs(5);
const STATISTICS_EVERY: Duration = Duration::from_secs(300);

/// The unit of sizes where the server has no chunks.
const UNIT_BYTES: u64 = 1 << 20;

/// A connection.
pub(crate) struct Server {
    connection: Conn,
}

/// Counters of the buffer pool. Those of events count since the server's start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Status {
    /// Reads of a page that a statement waited for.
    pub(crate) misses: f64,
    /// Requests of a page.
    pub(crate) requests: f64,
    /// Waits for a free page.
    pub(crate) waits: f64,
    pub(crate) dirty_pages: u64,
    pub(crate) free_pages: u64,
    used_pages: u64,
}

impl Status {
    /// From rows of `SHOW GLOBAL STATUS`.
    fn parse(rows: Vec<(String, String)>) -> Result<Status, AdapterError> {
        let rows: HashMap<String, String> = rows.into_iter().collect();
        let number = |name: &str| rows.get(name)?.parse::<u64>().ok();
        let data = number("Innodb_buffer_pool_pages_data");
        let requests = number("Innodb_buffer_pool_read_requests");
        let of = |name: &str| number(name).unwrap_or(0);
        Ok(Status {
            misses: of("Innodb_buffer_pool_reads") as f64,
            requests: requests.ok_or(AdapterError::Answer("counter of requests"))? as f64,
            waits: of("Innodb_buffer_pool_wait_free") as f64,
            dirty_pages: of("Innodb_buffer_pool_pages_dirty"),
            free_pages: of("Innodb_buffer_pool_pages_free"),
            used_pages: data.ok_or(AdapterError::Answer("number of pages"))?
                // A server was seen to count less than nothing here for a moment.
                + Some(of("Innodb_buffer_pool_pages_misc")).filter(|misc| *misc < 1 << 32).unwrap_or(0),
        })
    }

    /// The bytes of pages that hold something.
    pub(crate) fn bytes_in_use(&self, page: u64) -> u64 {
        self.used_pages * page
    }
}

impl Server {
    pub(crate) async fn connect(options: &MariaDbOptions) -> Result<Server, AdapterError> {
        let user = options.user.clone().unwrap_or_else(|| "root".to_owned());
        let builder = OptsBuilder::default()
            .user(Some(user))
            .pass(options.password.clone())
            .prefer_socket(false);
        let builder = match &options.address {
            Address::Unix(path) => builder.socket(Some(path.to_string_lossy())),
            Address::Tcp(host, port) => builder.ip_or_hostname(host.as_str()).tcp_port(*port),
        };
        let connection = timeout(CONNECT_MAX, Conn::new(builder)).await;
        Ok(Server {
            connection: connection.map_err(|_| AdapterError::Silent)??,
        })
    }

    pub(crate) async fn status(&mut self) -> Result<Status, AdapterError> {
        let query = "SHOW GLOBAL STATUS LIKE 'Innodb\\_buffer\\_pool\\_%'";
        Status::parse(self.connection.query(query).await?)
    }

    /// A global variable, if the server has it.
    pub(crate) async fn variable(&mut self, name: &str) -> Result<Option<String>, AdapterError> {
        let query = format!("SHOW GLOBAL VARIABLES LIKE '{}'", name.replace('_', "\\_"));
        let row: Option<(String, String)> = self.connection.query_first(query).await?;
        Ok(row.map(|(_, value)| value))
    }

    async fn number(&mut self, name: &str) -> Result<Option<u64>, AdapterError> {
        Ok(self
            .variable(name)
            .await?
            .and_then(|text| text.parse().ok()))
    }

    /// Sets a global variable to a number.
    pub(crate) async fn set(&mut self, name: &str, value: &str) -> Result<(), AdapterError> {
        Ok(self
            .connection
            .query_drop(format!("SET GLOBAL {name} = {value}"))
            .await?)
    }

    /// The size of the buffer pool.
    pub(crate) async fn size(&mut self) -> Result<u64, AdapterError> {
        let size = self.number("innodb_buffer_pool_size").await?;
        size.ok_or(AdapterError::Answer("size of the buffer pool"))
    }

    /// Sets the size of the buffer pool, waits until that is done, and returns the size then.
    pub(crate) async fn set_size(&mut self, bytes: u64) -> Result<u64, AdapterError> {
        self.set("innodb_buffer_pool_size", &bytes.to_string())
            .await?;
        // MySQL, and MariaDB before 10.11.12, go on in the background.
        let until = Instant::now() + RESIZE_MAX;
        while self.is_resizing().await? && Instant::now() < until {
            sleep(Duration::from_millis(50)).await;
        }
        self.size().await
    }

    async fn is_resizing(&mut self) -> Result<bool, AdapterError> {
        let query = "SHOW GLOBAL STATUS LIKE 'Innodb\\_buffer\\_pool\\_resize\\_status'";
        let row: Option<(String, String)> = self.connection.query_first(query).await?;
        Ok(row.is_some_and(|(_, text)| is_under_way(&text)))
    }

    /// The sizes that the server can have. A server that names no largest one is limited by the ceiling that is
    /// given, or by the machine's memory.
    pub(crate) async fn limits(&mut self, ceiling: Option<u64>) -> Result<Limits, AdapterError> {
        let chunk = self.number("innodb_buffer_pool_chunk_size").await?;
        let instances = self.number("innodb_buffer_pool_instances").await?;
        let most = self.number("innodb_buffer_pool_size_max").await?;
        let page = self.number("innodb_page_size").await?;
        let unit = match chunk {
            Some(chunk) if chunk > 0 => chunk * instances.unwrap_or(1).max(1),
            _ => UNIT_BYTES,
        };
        let most = match most {
            Some(most) if most > 0 => most,
            _ => ceiling.unwrap_or_else(crate::proxy::memory_of_machine),
        };
        let page = page.ok_or(AdapterError::Answer("size of a page"))?;
        let depth = self.number("innodb_lru_scan_depth").await?.unwrap_or(0);
        Ok(Limits {
            unit,
            most: (most - most % unit).max(unit),
            page,
            kept_free: depth * instances.unwrap_or(1).max(1) * page,
        })
    }

    /// How many bytes the tables and indexes of InnoDB have on disk: the size of their files, which
    /// follows loads at once and costs a server of many tables little, or what the statistics of tables
    /// say where files cannot be looked at. And after how long to ask again: a server may open
    /// every table for its statistics.
    pub(crate) async fn data_bytes(&mut self) -> Result<(u64, Duration), AdapterError> {
        // MariaDB's name, and MySQL's.
        for table in ["innodb_sys_tablespaces", "innodb_tablespaces"] {
            let of_files = format!(
                "SELECT CAST(COALESCE(SUM(file_size), 0) AS UNSIGNED) FROM information_schema.{table}"
            );
            match self.connection.query_first::<u64, _>(of_files).await {
                Ok(bytes) => return Ok((bytes.unwrap_or(0), FILES_EVERY)),
                // Without the privilege, or without the table.
                Err(mysql_async::Error::Server(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let of_tables = "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS UNSIGNED) \
             FROM information_schema.tables WHERE engine = 'InnoDB'";
        let bytes: Option<u64> = self.connection.query_first(of_tables).await?;
        Ok((bytes.unwrap_or(0), STATISTICS_EVERY))
    }

    /// The process of the server: the one that listens at a Unix socket, or the one that the server
    /// has written into its file, if that is a process of this machine.
    pub(crate) async fn pid(&mut self, address: &Address) -> Result<u32, AdapterError> {
        if let Address::Unix(path) = address {
            let peer = UnixStream::connect(path).await?.peer_cred()?;
            let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
            return pid.filter(|pid| *pid > 0).ok_or(AdapterError::NoProcess);
        }
        let file = self.variable("pid_file").await?;
        let folder = self.variable("datadir").await?;
        let file: PathBuf = Path::new(&folder.unwrap_or_default()).join(file.unwrap_or_default());
        let text = std::fs::read_to_string(file).map_err(|_| AdapterError::NoProcess)?;
        let pid = text.trim().parse().map_err(|_| AdapterError::NoProcess)?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .map_err(|_| AdapterError::NoProcess)?;
        // A server of a container or another machine has a number that is somebody else's here.
        match name.trim() {
            "mariadbd" | "mysqld" => Ok(pid),
            _ => Err(AdapterError::NoProcess),
        }
    }
}

/// Whether a server that reports this about its last change of size is still at it.
fn is_under_way(status: &str) -> bool {
    let status = status.trim().to_ascii_lowercase();
    let is_over = [
        "completed",
        "size did not change",
        "resizing buffer pool aborted",
        "cannot",
    ]
    .iter()
    .any(|end| status.starts_with(end));
    !status.is_empty() && !is_over && !status.contains("failed") && !status.contains("aborted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let rows = |extra: &[(&str, &str)]| {
            let mut rows = vec![
                ("Innodb_buffer_pool_pages_data", "10"),
                ("Innodb_buffer_pool_read_requests", "900"),
                (
                    "Innodb_buffer_pool_load_status",
                    "Buffer pool(s) load completed",
                ),
            ];
            rows.extend_from_slice(extra);
            rows.into_iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<Vec<_>>()
        };
        let status = Status::parse(rows(&[("Innodb_buffer_pool_reads", "7")])).unwrap();
        assert_eq!((status.misses, status.requests), (7.0, 900.0));
        assert_eq!(status.bytes_in_use(16 << 10), 160 << 10);
        let odd = rows(&[("Innodb_buffer_pool_pages_misc", "18446744073709551615")]);
        assert_eq!(Status::parse(odd).unwrap().bytes_in_use(1), 10);
        assert!(Status::parse(Vec::new()).is_err());
    }

    #[test]
    fn reports_of_a_resize_are_told_apart() {
        for over in [
            "",
            "Completed resizing buffer pool at 240101 10:00:00.",
            "Size did not change: old size = new size = 134217728",
            "Resizing buffer pool failed, finished resizing at 1.",
        ] {
            assert!(!is_under_way(over), "{over}");
        }
        assert!(is_under_way("Withdrawing blocks. (512/4096)."));
        assert!(is_under_way("Resizing buffer pool from 1 to 2 (unit=3)."));
    }
}
