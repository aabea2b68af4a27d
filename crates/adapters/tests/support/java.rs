//! Java programs that allocate.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::{Started, find};

/// Keeps so many MiB, makes so many MiB of garbage, says so, and sleeps.
const SOURCE: &str = r#"
import java.util.*;

public class Fill {
    public static void main(String[] amounts) throws Exception {
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 10 * Integer.parseInt(amounts[0]); i++) {
            kept.add(new byte[100 << 10]);
        }
        List<byte[]> garbage = new ArrayList<>();
        for (int i = 0; i < 10 * Integer.parseInt(amounts[1]); i++) {
            garbage.add(new byte[100 << 10]);
        }
        garbage = null;
        System.out.println("filled");
        Thread.sleep(600_000);
        System.out.println(kept.size());
    }
}
"#;

pub(crate) struct Java {
    pub(crate) process: Started,
    _folder: TempDir,
}

impl Java {
    /// Starts a virtual machine that keeps `kept` MiB and has `garbage` MiB beside, or says why there is
    /// none.
    pub(crate) fn start(options: &[&str], kept: u64, garbage: u64) -> Result<Java, String> {
        let java = find("java").ok_or("there is no java; scripts/setup participants")?;
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("Fill.java");
        std::fs::write(&source, SOURCE).unwrap();
        let mut process = Started::new(
            Command::new(java)
                .args(options)
                .arg(source)
                .args([kept.to_string(), garbage.to_string()])
                .current_dir(folder.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        );
        let stdout = process.0.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        if line.trim() != "filled" {
            let mut stderr = String::new();
            let mut said = process.0.stderr.take().expect("it is piped");
            std::io::Read::read_to_string(&mut said, &mut stderr).unwrap();
            return Err(format!("this virtual machine cannot: {}", stderr.trim()));
        }
        Ok(Java {
            process,
            _folder: folder,
        })
    }

    /// How the adapter reaches it.
    pub(crate) fn options(&self) -> String {
        format!("name=app,pid={}", self.process.pid())
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        self.process.kill();
        // A virtual machine that is killed leaves its socket behind.
        let _ = std::fs::remove_file(format!("/tmp/.java_pid{}", self.process.pid()));
    }
}
