//! Precedence, origins, and every way a configuration can be wrong.

use super::*;

const MACHINE: Machine = Machine {
    memory_bytes: 10 << 30,
    threads: 4,
};

fn layer(texts: &[(&'static str, &str)]) -> Layer {
    texts
        .iter()
        .map(|(name, text)| (*name, (*text).to_owned()))
        .collect()
}

fn read(flags: &[(&'static str, &str)]) -> Result<Config, Vec<String>> {
    let values = resolve(&layer(flags), &Layer::new(), None);
    Config::read(&values, MACHINE)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn the_default_stands_alone() {
    let config = read(&[]).unwrap();
    assert_eq!(config.listen, "127.0.0.1:5433".parse().unwrap());
    assert_eq!(config.memory, ByteSize(6 << 30));
    assert_eq!(config.threads, 4);
    assert_eq!((config.auth, config.tls), (Auth::Trust, Tls::Off));
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let flags = layer(&[("data", "flag")]);
    let environment = layer(&[("data", "env"), ("memory", "1GB")]);
    let file = layer(&[("data", "file"), ("memory", "2GB"), ("threads", "3")]);
    let path = Path::new("a.toml");
    let values = resolve(&flags, &environment, Some((path, &file)));
    let shown: Vec<(&str, &str, &Origin)> = values
        .iter()
        .map(|value| (value.setting.name, value.text.as_str(), &value.origin))
        .collect();
    assert!(shown.contains(&("data", "flag", &Origin::Flag)));
    assert!(shown.contains(&("memory", "1GB", &Origin::Environment)));
    assert!(shown.contains(&("threads", "3", &Origin::File(path.to_owned()))));
    assert!(shown.contains(&("http", "127.0.0.1:8433", &Origin::Default)));
}

#[test]
fn spilled_rows_take_quantities_or_shares_of_the_disk() {
    let spill = read(&[]).unwrap().spill;
    assert_eq!(spill, SpillLimits::default());
    let flags = [("spill-max", "3GB"), ("spill-tenant-max", "0%")];
    let spill = read(&flags).unwrap().spill;
    assert_eq!(spill.node, DiskQuantity::Bytes(ByteSize(3 << 30)));
    assert_eq!(spill.tenant, DiskQuantity::Percent(0));
    for wrong in ["101%", "-1%", "some", "%", ""] {
        let errors = read(&[("spill-max", wrong), ("spill-reserve", "5%")]).unwrap_err();
        assert_eq!(errors.len(), 2, "{wrong}: {errors:?}");
    }
}

#[test]
fn statements_have_limits_or_none() {
    let defaults = read(&[]).unwrap().statements;
    assert_eq!(defaults.node_max, Some(NODE_STATEMENTS_MAX));
    let of_database = defaults.of_database;
    assert_eq!(
        (of_database.running_max(), of_database.waiting_max()),
        (None, None)
    );
    assert_eq!(of_database.timeout(), Some(Duration::from_secs(120)));
    let flags = [
        ("node-statements-max", "none"),
        ("statements-max", "16"),
        ("queue-max", "0"),
        ("queue-timeout", "0"),
    ];
    let given = read(&flags).unwrap().statements;
    assert_eq!(given.node_max, None);
    assert_eq!(given.of_database.running_max(), Some(16));
    assert_eq!(given.of_database.waiting_max(), Some(0));
    assert_eq!(given.of_database.timeout(), None);
    for wrong in ["-1", "auto", "many", "", "1000001"] {
        let errors = read(&[("statements-max", wrong), ("queue-max", wrong)]).unwrap_err();
        assert_eq!(errors.len(), 2, "{wrong}: {errors:?}");
    }
    for (name, wrong) in [
        ("node-statements-max", "0"),
        ("statements-max", "0"),
        ("queue-timeout", "-1s"),
        ("queue-timeout", "none"),
    ] {
        assert_eq!(read(&[(name, wrong)]).unwrap_err().len(), 1, "{name}");
    }
}

#[test]
fn the_rendered_configuration_is_toml_that_reads_back() {
    let flags = layer(&[("data", "a \"quoted\" folder"), ("listen", "[::1]:5433")]);
    let values = resolve(&flags, &Layer::new(), None);
    let table: toml::Table = render(&values).parse().unwrap();
    assert_eq!(table["data"].as_str(), Some("a \"quoted\" folder"));
    assert_eq!(table.len(), SETTINGS.len());
    assert!(render(&values).contains("# --data"));
    assert!(render(&values).contains("# default"));
}

#[test]
fn mistakes_name_their_place_and_all_are_shown() {
    let errors = read(&[
        ("listen", "nowhere"),
        ("memory", "1 XB"),
        ("threads", "0"),
        ("auth", "maybe"),
    ])
    .unwrap_err();
    assert_eq!(errors.len(), 4, "{errors:?}");
    assert!(errors[0].starts_with("--listen: \"nowhere\" is not an address"));
    assert!(errors[3].contains("one of trust, scram"), "{errors:?}");
}

#[test]
fn memory_is_a_quantity_or_a_share() {
    assert_eq!(
        read(&[("memory", "50%")]).unwrap().memory,
        ByteSize(5 << 30)
    );
    assert_eq!(
        read(&[("memory", "2GB")]).unwrap().memory,
        ByteSize(2 << 30)
    );
    for wrong in ["0", "1MB", "101%", "-1%", "x%", "lots"] {
        assert!(read(&[("memory", wrong)]).is_err(), "{wrong}");
    }
}

#[test]
fn the_network_needs_passwords_and_tls() {
    let open = ("listen", "0.0.0.0:5433");
    let errors = read(&[open]).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("add --auth scram --tls self-signed"),
        "{errors:?}"
    );
    assert!(read(&[open, ("auth", "scram")]).unwrap_err()[0].contains("add --tls self-signed"));
    assert!(read(&[open, ("tls", "self-signed")]).unwrap_err()[0].contains("add --auth scram"));
    assert!(read(&[open, ("auth", "scram"), ("tls", "self-signed")]).is_ok());
    assert!(read(&[open, ("auth", "scram"), ("tls-cert", "c"), ("tls-key", "k")]).is_ok());
    assert!(read(&[("listen", "[::1]:5433")]).is_ok());
}

#[test]
fn certificate_and_key_belong_together() {
    assert!(read(&[("tls-cert", "c")]).is_err());
    assert!(read(&[("tls", "self-signed"), ("tls-cert", "c"), ("tls-key", "k")]).is_err());
    assert!(read(&[("tls", "files")]).is_err());
    let config = read(&[("tls-cert", "c"), ("tls-key", "k")]).unwrap();
    assert_eq!(
        config.tls,
        Tls::Files {
            cert: "c".into(),
            key: "k".into()
        }
    );
}
