//! Guests with a kernel: Debian's, with this program in its first file system, in qemu.
//!
//! ```text
//! prepare   apt-get download ─► dpkg-deb ─► CACHE/guest: kernel, modules, busybox, packages
//! start     modules, busybox, this program with its libraries, /init ─► cpio
//!           qemu: kernel + cpio, a virtio port ─► /init ─► worker on that port
//! ```
//!
//! Nothing is downloaded but by `prepare`; nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use aerostat_micro_vm::kernel_mode_slowdown;
use anyhow::{Context, Result, bail};

use super::cpio::Cpio;
use super::worker::Worker;
use crate::Environment;

/// Debian's package that names the newest kernel for guests, and the shell of the guest.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
const SHELL_PACKAGE: &str = "busybox-static";

/// Modules for a virtio port, each behind those it needs. One that a kernel does not have is
/// part of it.
const MODULES: [&str; 6] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_console",
];

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";

/// The guest's memory: the largest tables and walks there are, and the system.
const MEMORY_MIB: u32 = 1536;

/// How long a guest may take to boot: an emulated one takes some ten seconds on a busy core.
const BOOT: Duration = Duration::from_secs(120);

/// Kernel mode that is slower than user mode by more than this factor is emulated.
const EMULATED: f64 = 10.0;

/// Where guests' parts are kept between runs.
///
/// # Errors
/// When the environment names no folder.
fn cache() -> Result<PathBuf> {
    let of = |name, below: &str| Some(PathBuf::from(std::env::var_os(name)?).join(below));
    let folder = of("XDG_CACHE_HOME", "aerostat-lab").or_else(|| of("HOME", ".cache/aerostat-lab"));
    Ok(folder
        .context("neither XDG_CACHE_HOME nor HOME is set")?
        .join("guest"))
}

/// Downloads Debian's packages and unpacks what a guest needs of them; tells what is there.
///
/// # Errors
/// When a step fails, with what it said.
pub(crate) fn prepare() -> Result<String> {
    let folder = cache()?;
    let part = folder.with_extension("part");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
    let depends = done(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]))?;
    let kernel = kernel_of(&String::from_utf8_lossy(&depends.stdout))
        .with_context(|| format!("{KERNEL_PACKAGE} is not known: run apt-get update"))?
        .to_owned();
    let mut download = Command::new("apt-get");
    download.args(["-qq", "download", &kernel, SHELL_PACKAGE]);
    done(download.current_dir(&part))?;
    let mut packages = files(&part, "deb")?;
    packages.sort();
    let unpacked = part.join("unpacked");
    for package in &packages {
        done(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(package)
                .arg(&unpacked),
        )?;
        fs::remove_file(package)?;
    }
    keep(&unpacked, &part).context("the packages are not as expected")?;
    fs::remove_dir_all(&unpacked)?;
    let name = |path: &PathBuf| {
        path.file_stem()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let names: Vec<String> = packages.iter().filter_map(name).collect();
    fs::write(part.join("packages"), names.join("\n"))?;
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&part, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(format!("{}: {}", folder.display(), names.join(", ")))
}

/// Moves kernel, modules and shell out of unpacked packages.
fn keep(unpacked: &Path, folder: &Path) -> Result<()> {
    let kernels = entries(&unpacked.join("boot"))?;
    let is_kernel = |path: &&PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    let kernel = kernels.iter().find(is_kernel).context("no kernel")?;
    fs::rename(kernel, folder.join("kernel"))?;
    let shell = ["bin/busybox", "usr/bin/busybox"].map(|path| unpacked.join(path));
    let shell = shell
        .iter()
        .find(|path| path.exists())
        .context("no shell")?;
    fs::rename(shell, folder.join("busybox"))?;
    // Since /lib is a part of /usr, packages have their modules there.
    let libraries = ["lib/modules", "usr/lib/modules"].map(|path| unpacked.join(path));
    let libraries = libraries
        .iter()
        .find(|path| path.exists())
        .context("no modules")?;
    let release = entries(libraries)?.pop().context("no modules")?;
    let modules = folder.join("modules");
    fs::create_dir_all(&modules)?;
    for kind in ["virtio", "char"] {
        for file in entries(&release.join("kernel/drivers").join(kind))? {
            let name = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if MODULES
                .iter()
                .any(|module| name.split('.').next() == Some(module))
            {
                fs::rename(&file, modules.join(name))?;
            }
        }
    }
    Ok(())
}

/// The kernel's package in what `apt-cache depends` says.
fn kernel_of(depends: &str) -> Option<&str> {
    let mut lines = depends.lines().map(str::trim);
    lines.find_map(|line| {
        line.strip_prefix("Depends: ")
            .filter(|name| name.starts_with("linux-image-"))
    })
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    Ok(read.filter_map(|entry| Some(entry.ok()?.path())).collect())
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut all = entries(folder)?;
    all.retain(|path| path.extension().is_some_and(|is| is == extension));
    Ok(all)
}

/// Runs a command to its end.
fn done(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", errors.trim());
    }
    Ok(output)
}

/// Starts a guest with a worker in it.
///
/// # Errors
/// Why there is none here.
pub(crate) fn start(
    environment: Environment,
    (program, before): &(PathBuf, Vec<String>),
) -> Result<Worker> {
    let folder = cache()?;
    let accelerator = match environment {
        Environment::KvmLinux => {
            let slowdown = kernel_mode_slowdown().context("no guest of KVM")?;
            if slowdown > EMULATED {
                bail!(
                    "emulated ring 0: a loop in a guest's kernel mode takes {slowdown:.0} times as long as in its user mode"
                );
            }
            ["-accel", "kvm", "-cpu", "host"]
        }
        _ => ["-accel", "tcg", "-cpu", "max"],
    };
    if done(Command::new(QEMU).arg("--version")).is_err() {
        bail!("no {QEMU} here (Debian: apt-get install qemu-system-x86)");
    }
    let kernel = folder.join("kernel");
    if !kernel.exists() {
        bail!(
            "no guest's kernel in {}: run `lab prepare` once",
            folder.display()
        );
    }
    let archive = folder.join(format!("initramfs-{}", std::process::id()));
    let image = image(&folder, program, before).context("cannot assemble the guest's image")?;
    fs::write(&archive, image).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut command = Command::new(QEMU);
    command
        .args(accelerator)
        .args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ])
        .args(["-m", &format!("{MEMORY_MIB}")])
        .arg("-kernel")
        .arg(&kernel)
        .arg("-initrd")
        .arg(&archive)
        .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"])
        .args(["-serial", "file:/dev/stderr"])
        .args(["-chardev", "stdio,id=lab,signal=off"])
        .args(["-device", "virtio-serial-pci"])
        .args(["-device", "virtserialport,chardev=lab,name=lab"]);
    let worker = Worker::start(command, BOOT);
    // The guest has read it.
    let _ = fs::remove_file(&archive);
    worker
}

/// The guest's first file system.
fn image(folder: &Path, program: &Path, before: &[String]) -> Result<Vec<u8>> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let mut archive = Cpio::default();
    for name in ["bin", "dev", "lib", "modules", "proc", "sys"] {
        archive.folder(name);
    }
    archive.file("bin/busybox", &read(&folder.join("busybox"))?);
    for module in entries(&folder.join("modules"))? {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("modules/{name}"), &read(&module)?);
    }
    archive.file("bin/lab", &read(program)?);
    let maps = fs::read_to_string("/proc/self/maps").context("cannot read own mappings")?;
    let mut loader = None;
    for library in libraries(&maps) {
        let name = library.rsplit('/').next().unwrap_or(library);
        if name.starts_with("ld-") {
            loader = Some(format!("/lib/{name}"));
        }
        archive.file(&format!("lib/{name}"), &read(Path::new(library))?);
    }
    archive.file("init", init(loader.as_deref(), before).as_bytes());
    Ok(archive.end())
}

/// The files of the libraries that this process has loaded, its loader among them.
fn libraries(maps: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = maps
        .lines()
        .filter_map(|line| Some(&line[line.find('/')?..]))
        .filter(|path| path.contains(".so"))
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// The guest's first program: a shell that makes the virtio port ready and starts the worker
/// on it.
fn init(loader: Option<&str>, before: &[String]) -> String {
    let run = loader.map_or(String::new(), |loader| {
        format!("{loader} --library-path /lib ")
    });
    let before: String = before.iter().map(|one| format!(" {one}")).collect();
    let modules = MODULES.join(" ");
    format!(
        "#!/bin/busybox sh\n\
         b=/bin/busybox\n\
         $b mount -t devtmpfs none /dev\n\
         $b mount -t proc none /proc\n\
         $b mount -t sysfs none /sys\n\
         for m in {modules}; do\n\
         \x20   for f in /modules/$m.ko*; do [ -e $f ] && $b insmod $f; done\n\
         done\n\
         n=0\n\
         until [ -e /dev/vport0p1 ] || [ $n -gt 1000 ]; do $b usleep 10000; n=$((n + 1)); done\n\
         [ -e /dev/vport0p1 ] || echo 'there is no virtio port' >&2\n\
         {run}/bin/lab{before} helper worker 0<>/dev/vport0p1 1>&0\n\
         $b poweroff -f\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_package_is_found() {
        let depends =
            "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n  Suggests: x\n";
        assert_eq!(kernel_of(depends), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(kernel_of(""), None);
    }

    #[test]
    fn libraries_are_told_once_each() {
        let maps = "7f0-7f1 r--p 0 fe:00 1   /usr/lib/x/libc.so.6\n\
                    7f1-7f2 r-xp 1 fe:00 1   /usr/lib/x/libc.so.6\n\
                    7f3-7f4 r-xp 1 fe:00 2   /usr/lib/x/ld-linux-x86-64.so.2\n\
                    7f5-7f6 r-xp 1 fe:00 3   /home/a/aerostat-lab\n\
                    7f7-7f8 rw-p 0 00:00 0   [stack]\n";
        assert_eq!(
            libraries(maps),
            ["/usr/lib/x/ld-linux-x86-64.so.2", "/usr/lib/x/libc.so.6"]
        );
    }

    #[test]
    fn the_first_program_starts_a_worker_on_the_port() {
        let text = init(Some("/lib/ld-x.so.2"), &["lab".to_owned()]);
        assert!(text.starts_with("#!/bin/busybox sh\n"), "{text}");
        assert!(
            text.contains(
                "/lib/ld-x.so.2 --library-path /lib /bin/lab lab helper worker 0<>/dev/vport0p1"
            ),
            "{text}"
        );
        assert!(init(None, &[]).contains("\n/bin/lab helper worker"));
    }
}
