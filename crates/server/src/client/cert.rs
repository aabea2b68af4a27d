//! `aerostat cert`: an authority, and certificates by which nodes of a cluster know each other.
//!
//! ```text
//!  DIR/ca.crt, ca.key          the authority; its key is needed for new certificates alone
//!  DIR/NAME/ca.crt             what goes to node NAME, as its --peer-certs: whose certificates it trusts,
//!  DIR/NAME/node.crt, node.key its own, and its key
//! ```

use std::{
    fs,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aerostat_transport::{AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE, Transport, expires};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

/// The authority's private key.
const AUTHORITY_KEY_FILE: &str = "ca.key";

/// Clocks of machines differ.
const BEFORE: Duration = Duration::hours(1);

/// What to do with certificates.
#[derive(Subcommand)]
pub(crate) enum CertCommand {
    /// Make an authority for a cluster
    Ca(AuthorityArguments),
    /// Make a node's certificate, or make it anew
    Node(NodeArguments),
    /// List the certificates, and until when they are valid
    List(Folder),
}

/// Where certificates are.
#[derive(Args)]
pub(crate) struct Folder {
    /// Folder of the authority, with one for each node
    #[arg(long, default_value = "certs")]
    dir: PathBuf,
}

#[derive(Args)]
pub(crate) struct AuthorityArguments {
    #[command(flatten)]
    folder: Folder,
    /// Days that it is valid
    #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,
}

#[derive(Args)]
pub(crate) struct NodeArguments {
    /// The node's name, as its --node-name
    name: String,
    #[command(flatten)]
    folder: Folder,
    /// Host names and addresses that clients reach the node by, if it is to serve them with this certificate, too
    /// (--tls-cert, --tls-key)
    #[arg(long)]
    host: Vec<String>,
    /// Days that it is valid
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u16).range(1..))]
    days: u16,
}

/// Does it.
///
/// # Errors
/// Files that cannot be written, or are there and must not be replaced; names that no certificate can have.
pub(crate) fn run(command: &CertCommand) -> Result<()> {
    match command {
        CertCommand::Ca(arguments) => authority(arguments),
        CertCommand::Node(arguments) => node(arguments),
        CertCommand::List(folder) => list(&folder.dir),
    }
}

fn authority(arguments: &AuthorityArguments) -> Result<()> {
    let dir = &arguments.folder.dir;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let (cert, key) = (dir.join(AUTHORITY_FILE), dir.join(AUTHORITY_KEY_FILE));
    if cert.exists() || key.exists() {
        bail!(
            "{} has an authority; its nodes would not know those of another. Take another --dir, or remove {AUTHORITY_FILE} and {AUTHORITY_KEY_FILE} first",
            dir.display()
        );
    }
    let pair = KeyPair::generate().context("cannot make a key")?;
    let mut params = valid_for(CertificateParams::new(Vec::new())?, arguments.days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "Aerostat cluster authority");
    let made = params
        .self_signed(&pair)
        .context("cannot make a certificate")?;
    write(&key, &pair.serialize_pem(), true)?;
    write(&cert, &made.pem(), false)?;
    crate::print(&format!(
        "made {} and {}; keep the key where no node runs",
        cert.display(),
        key.display()
    ))
}

fn node(arguments: &NodeArguments) -> Result<()> {
    let (dir, name) = (&arguments.folder.dir, &arguments.name);
    let read = |file: &str| {
        let path = dir.join(file);
        fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read {}; aerostat cert ca makes an authority",
                path.display()
            )
        })
    };
    let authority = read(AUTHORITY_FILE)?;
    let key = KeyPair::from_pem(&read(AUTHORITY_KEY_FILE)?)
        .with_context(|| format!("no private key in {AUTHORITY_KEY_FILE}"))?;
    let issuer = Issuer::from_ca_cert_pem(&authority, key)
        .with_context(|| format!("no certificate in {AUTHORITY_FILE}"))?;
    let folder = dir.join(name);
    if !aerostat_transport::is_name(name) || folder.file_name() != Some(name.as_ref()) {
        bail!(
            "no certificate can be for a node \"{name}\": a name has letters, digits and -, not digits alone, and neither begins nor ends with -"
        );
    }
    let mut params = valid_for(CertificateParams::new(vec![name.clone()])?, arguments.days)?;
    for host in &arguments.host {
        params.subject_alt_names.push(match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(
                host.as_str()
                    .try_into()
                    .with_context(|| format!("{host} is no host"))?,
            ),
        });
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let pair = KeyPair::generate().context("cannot make a key")?;
    let made = params
        .signed_by(&pair, &issuer)
        .context("cannot sign the certificate")?;
    // A node that runs takes what is there when it looks: the whole folder is replaced, but for what nobody reads yet.
    let next = dir.join(format!(".{name}.new"));
    let _ = fs::remove_dir_all(&next);
    fs::create_dir_all(&next).with_context(|| format!("cannot make {}", next.display()))?;
    write(&next.join(AUTHORITY_FILE), &authority, false)?;
    write(&next.join(CERTIFICATE_FILE), &made.pem(), false)?;
    write(&next.join(KEY_FILE), &pair.serialize_pem(), true)?;
    Transport::secured(&next, name).context("what was made would not be taken by a node")?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in [AUTHORITY_FILE, KEY_FILE, CERTIFICATE_FILE] {
        fs::rename(next.join(file), folder.join(file))
            .with_context(|| format!("cannot write {}", folder.join(file).display()))?;
    }
    let _ = fs::remove_dir(&next);
    crate::print(&format!(
        "made {}; copy it to the node, and start that with --node-name {name} --peer-certs FOLDER",
        folder.display()
    ))
}

fn valid_for(mut params: CertificateParams, days: u16) -> Result<CertificateParams> {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - BEFORE;
    params.not_after = now
        .checked_add(Duration::days(i64::from(days)))
        .context("so many days from now there is no date")?;
    Ok(params)
}

fn write(path: &Path, text: &str, private: bool) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(if private { 0o600 } else { 0o644 })
            .open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn list(dir: &Path) -> Result<()> {
    let mut found = vec![("the authority".to_owned(), dir.join(AUTHORITY_FILE))];
    let folders = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for folder in folders {
        let path = folder?.path().join(CERTIFICATE_FILE);
        if let Some(name) = path.parent().and_then(Path::file_name)
            && path.is_file()
        {
            found.push((name.to_string_lossy().into_owned(), path));
        }
    }
    found[1..].sort();
    let now = OffsetDateTime::now_utc();
    for (name, path) in found {
        let until = expires(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let until = OffsetDateTime::from(until);
        let days = (until - now).whole_days();
        let left = match until < now {
            true => "over".to_owned(),
            false => format!("{days} days"),
        };
        crate::print(&format!("{name:24} until {}  {left}", until.date()))?;
    }
    Ok(())
}
