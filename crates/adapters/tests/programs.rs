//! Adapters beside the real programs: what they are told to have is what the kernel counts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod support;

use std::time::Duration;

use aerostat_adapters::{Adapter, AdapterError, Ended, run_adapter};
use aerostat_balloon::endpoint::Endpoint;
use aerostat_broker::{
    core::Settings,
    serve::{Broker, Options},
};
use support::{
    MIB, Watched, group::Group, guest::Guest, java::Java, mariadb::MariaDb, redis::Redis, report,
    skip, until,
};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_gives_its_buffer_pool_and_takes_it_again() {
    let sizes = [
        "--innodb-buffer-pool-size=512M",
        "--innodb-buffer-pool-size-max=768M",
    ];
    let mut server = match MariaDb::start(&sizes).await {
        Ok(server) => server,
        Err(why) => return skip("MariaDB", &why),
    };
    server.fill(28_000).await;
    let watched = Watched::start("mariadb", &server.options()).await;
    let hello = watched.hello();
    assert_eq!(hello.pid, Some(server.process.pid()));
    assert!(!hello.is_fixed);
    let before = server.process.counted();
    assert!(before > 450 * MIB, "{before}");
    assert!(hello.ceiling > 768 * MIB && hello.ceiling < 1024 * MIB);
    assert!(
        (512 * MIB..700 * MIB).contains(&hello.target),
        "{}",
        hello.target
    );
    let dirty = server.variable("innodb_max_dirty_pages_pct").await;
    let capacity = server.variable("innodb_io_capacity_max").await;

    let target = 320 * MIB;
    let took = watched.tell(target).await;
    let after = server.process.counted();
    report("MariaDB", before, target, after, took);
    assert!(after <= target, "{after}");
    assert!(watched.participant.target() <= target);
    let small: u64 = server
        .variable("innodb_buffer_pool_size")
        .await
        .parse()
        .unwrap();
    assert!((128 * MIB..300 * MIB).contains(&small), "{small}");
    assert_eq!(server.variable("innodb_max_dirty_pages_pct").await, dirty);
    assert_eq!(server.variable("innodb_io_capacity_max").await, capacity);

    // Nothing fits any more: reads miss, and the adapter says what that costs.
    until("a demand", || {
        let demand = watched.participant.demand();
        demand.is_some_and(|demand| demand.check().is_ok() && demand.wanted > 0)
    })
    .await;
    server.query("SELECT SUM(LENGTH(p)) FROM shop.t").await;
    until("a wish for more", || {
        let demand = watched.participant.demand().unwrap();
        demand.wanted > target && demand.costs.first().is_some_and(|cost| cost.ms_per_s > 1.0)
    })
    .await;

    let took = watched.tell(700 * MIB).await;
    let large: u64 = server
        .variable("innodb_buffer_pool_size")
        .await
        .parse()
        .unwrap();
    println!(
        "MariaDB: grew from {} to {} MiB in {} ms",
        small / MIB,
        large / MIB,
        took.as_millis()
    );
    assert!(large > 512 * MIB, "{large}");
    assert_eq!(watched.participant.target(), 700 * MIB);

    // Less than it can have: it keeps what it needs and says so.
    watched.tell(16 * MIB).await;
    let least: u64 = server
        .variable("innodb_buffer_pool_size")
        .await
        .parse()
        .unwrap();
    assert_eq!(least, 64 * MIB);
    assert!(watched.participant.target() > 64 * MIB);

    server.process.kill();
    watched.sees_the_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_wants_memory_for_data_that_came_after_the_adapter() {
    let server = match MariaDb::start(&["--innodb-buffer-pool-size=128M"]).await {
        Ok(server) => server,
        Err(why) => return skip("MariaDB", &why),
    };
    let options = format!("{},ceiling=1GB", server.options());
    let watched = Watched::start("mariadb", &options).await;
    until("a demand", || watched.participant.demand().is_some()).await;
    server.fill(20_000).await;
    let reading = CancellationToken::new();
    let reader = tokio::spawn(server.write(reading.clone()));
    // Some 300 MB of rows.
    until("a wish for all of the data", || {
        let demand = watched.participant.demand().unwrap();
        demand.wanted > 320 * MIB && demand.costs.first().is_some_and(|cost| cost.ms_per_s > 1.0)
    })
    .await;
    reading.cancel();
    reader.await.unwrap();
    watched.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_shrinks_beside_writers_and_after_a_broken_connection() {
    let sizes = [
        "--innodb-buffer-pool-size=400M",
        "--innodb-buffer-pool-size-max=400M",
    ];
    let server = match MariaDb::start(&sizes).await {
        Ok(server) => server,
        Err(why) => return skip("MariaDB", &why),
    };
    server.fill(22_000).await;
    let watched = Watched::start("mariadb", &server.options()).await;
    let dirty = server.variable("innodb_max_dirty_pages_pct").await;
    let writing = CancellationToken::new();
    let writer = tokio::spawn(server.write(writing.clone()));
    let before = server.process.counted();
    let target = 280 * MIB;
    let took = watched.tell(target).await;
    writing.cancel();
    let (statements, worst) = writer.await.unwrap();
    report(
        "MariaDB that writes",
        before,
        target,
        server.process.counted(),
        took,
    );
    println!(
        "{statements} updates meanwhile, the slowest took {} ms",
        worst.as_millis()
    );
    assert!(statements > 0);
    assert!(watched.participant.target() <= target);
    let size: u64 = server
        .variable("innodb_buffer_pool_size")
        .await
        .parse()
        .unwrap();
    assert!(size < 280 * MIB, "{size}");
    assert_eq!(server.variable("innodb_max_dirty_pages_pct").await, dirty);

    server.kill_connections().await;
    watched.tell(360 * MIB).await;
    let grown: u64 = server
        .variable("innodb_buffer_pool_size")
        .await
        .parse()
        .unwrap();
    assert!(grown > size, "{size}, {grown}");
    watched.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_refuses_whom_it_does_not_know_or_who_may_not() {
    let server = match MariaDb::start(&["--innodb-buffer-pool-size=64M"]).await {
        Ok(server) => server,
        Err(why) => return skip("MariaDB", &why),
    };
    server
        .query("CREATE USER little IDENTIFIED BY 'secret'")
        .await;
    for user in ["user=nobody,password=wrong", "user=little,password=secret"] {
        let options = format!("{},{user}", server.options());
        let adapter = Adapter::parse("mariadb", &options).unwrap();
        let started = adapter.start(CancellationToken::new()).await;
        assert!(matches!(started, Err(AdapterError::Sql(_))), "{user}");
    }
    server.query("GRANT SUPER ON *.* TO little").await;
    let options = format!("{},user=little,password=secret", server.options());
    Watched::start("mariadb", &options).await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_evicts_down_to_its_target() {
    let redis = match Redis::start("allkeys-lru", "400mb").await {
        Ok(redis) => redis,
        Err(why) => return skip("Redis", &why),
    };
    redis.fill(9_000, 32 << 10);
    let watched = Watched::start("redis", &redis.options()).await;
    let before = redis.process.counted();
    assert!(before > 280 * MIB, "{before}");
    assert_eq!(watched.hello().pid, Some(redis.process.pid()));

    let target = 150 * MIB;
    let took = watched.tell(target).await;
    let after = redis.process.counted();
    report("Redis", before, target, after, took);
    assert!(after <= target, "{after}");
    assert!(watched.participant.target() <= target);

    watched.tell(350 * MIB).await;
    let limit: u64 = redis.setting("maxmemory").parse().unwrap();
    assert!((250 * MIB..=350 * MIB).contains(&limit), "{limit}");
    redis.fill(9_000, 32 << 10);
    assert!(redis.process.counted() > 250 * MIB);

    // A connection that broke is made again.
    redis.send("CLIENT KILL TYPE normal SKIPME yes");
    watched.tell(200 * MIB).await;
    assert!(redis.process.counted() <= 200 * MIB);
    watched.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_that_may_not_evict_keeps_what_it_uses() {
    let mut redis = match Redis::start("noeviction", "400mb").await {
        Ok(redis) => redis,
        Err(why) => return skip("Redis", &why),
    };
    redis.fill(4_000, 32 << 10);
    let watched = Watched::start("redis", &redis.options()).await;
    let used = redis.process.counted();
    assert!(watched.hello().floor >= used);
    watched.tell(32 * MIB).await;
    let limit: u64 = redis.setting("maxmemory").parse().unwrap();
    assert!(limit > 120 * MIB, "{limit}");
    assert!(watched.participant.target() > 120 * MIB);
    // It still takes writes.
    redis.fill(10, 1 << 10);
    redis.process.kill();
    watched.sees_the_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_machine_gives_what_its_guest_does_not_need() {
    let mut guest = match Guest::start(512, &["-device", "virtio-balloon-pci"]).await {
        Ok(guest) => guest,
        Err(why) => return skip("a virtual machine", &why),
    };
    // Pages that were in use and are free again are QEMU's until the balloon has them.
    let fill = "/bin/busybox dd if=/dev/zero of=/data/a bs=1M count=300 2>/dev/null";
    guest.run(fill);
    guest.run("/bin/busybox rm /data/a");
    let watched = Watched::start("vm", &guest.options()).await;
    until("the guest tells what it has", || !watched.hello().is_fixed).await;
    let hello = watched.hello();
    assert_eq!(hello.pid, Some(guest.process.pid()));
    let before = guest.process.counted();
    assert!(before > 330 * MIB, "{before}");
    assert!(hello.floor < before - 150 * MIB && hello.ceiling >= 512 * MIB);

    let target = before - 150 * MIB;
    let took = watched.tell(target).await;
    let after = guest.process.counted();
    report("a virtual machine", before, target, after, took);
    assert!(after <= target, "{after}");
    assert!(watched.participant.target() <= target);
    let small = guest.memory("MemTotal");
    assert!(small < 400 * MIB, "{small}");
    let demand = watched.participant.demand().unwrap();
    assert_eq!(demand.check(), Ok(()));

    // A machine that stands still for longer than its monitor is waited for is followed again.
    guest.process.signal("STOP");
    watched.participant.set_target(before - 100 * MIB);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!watched.participant.is_reached());
    guest.process.signal("CONT");
    until("the target is followed", || {
        watched.participant.is_reached()
    })
    .await;
    assert!(watched.participant.target() <= before - 100 * MIB);

    // A guest that needs its memory is not made smaller than that: nothing in it is killed.
    watched.tell(hello.ceiling).await;
    guest.run(fill);
    until("the guest tells what it needs", || {
        watched.hello().floor > 300 * MIB
    })
    .await;
    watched.tell(MIB).await;
    assert!(watched.participant.target() > 300 * MIB);
    let length = guest.run("/bin/busybox stat -c %s /data/a");
    assert!(length.contains(&(300 * MIB).to_string()), "{length:?}");
    let killed = guest.run("/bin/busybox dmesg | /bin/busybox grep -c 'Out of memory'");
    assert!(killed.contains('0'), "{killed:?}");

    guest.process.kill();
    watched.sees_the_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_machine_without_a_balloon_is_told_of() {
    let guest = match Guest::start(256, &[]).await {
        Ok(guest) => guest,
        Err(why) => return skip("a virtual machine", &why),
    };
    let adapter = Adapter::parse("vm", &guest.options()).unwrap();
    let refused = adapter.start(CancellationToken::new()).await.err().unwrap();
    assert!(
        matches!(refused, AdapterError::Answer("virtio-balloon device")),
        "{refused:?}"
    );
}

/// A virtual machine whose collector gives memory back.
async fn java_gives(what: &str, options: &[&str]) {
    let java = match Java::start(options, 20, 300) {
        Ok(java) => java,
        Err(why) => return skip(what, &why),
    };
    let watched = Watched::start("jvm", &java.options()).await;
    let hello = watched.hello();
    assert!(!hello.is_fixed, "{what}");
    let before = java.process.counted();
    assert!(before > 250 * MIB, "{what}: {before}");
    let target = 160 * MIB;
    let took = watched.tell(target).await;
    let after = java.process.counted();
    report(what, before, target, after, took);
    assert!(after <= target, "{what}: {after}");
    assert!(watched.participant.target() <= target, "{what}");
    let demand = watched.participant.demand().unwrap();
    assert_eq!(demand.check(), Ok(()));
    watched.tell(hello.ceiling).await;
    assert_eq!(watched.participant.target(), hello.ceiling);
    watched.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zgc_gives_its_garbage_back() {
    let options = ["-XX:+UseZGC", "-Xmx512m", "-Xms16m", "-XX:ZUncommitDelay=1"];
    java_gives("ZGC", &options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shenandoah_gives_its_garbage_back() {
    let options = ["-XX:+UseShenandoahGC", "-Xmx512m", "-Xms16m"];
    java_gives("Shenandoah", &options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_gives_its_garbage_back() {
    java_gives("G1", &["-XX:+UseG1GC", "-Xmx512m", "-Xms16m"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn collectors_that_cannot_give_are_fixed() {
    for collector in ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseZGC"] {
        // ZGC waits five minutes unless it is told otherwise.
        let options = [collector, "-Xmx256m", "-Xms16m"];
        let mut java = match Java::start(&options, 50, 10) {
            Ok(java) => java,
            Err(why) => return skip("Java", &why),
        };
        let watched = Watched::start("jvm", &java.options()).await;
        assert!(watched.hello().is_fixed, "{collector}");
        let before = java.process.counted();
        watched.tell(32 * MIB).await;
        assert!(watched.participant.target() > 32 * MIB, "{collector}");
        assert!(java.process.counted() >= before / 2, "{collector}");
        java.process.kill();
        watched.sees_the_end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_virtual_machine_gets_no_signal() {
    let mut sleep = support::Started::new(std::process::Command::new("sleep").arg("60"));
    let adapter = Adapter::parse("jvm", &format!("name=app,pid={}", sleep.pid())).unwrap();
    assert!(adapter.start(CancellationToken::new()).await.is_err());
    assert!(sleep.0.try_wait().unwrap().is_none(), "it lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_moves_memory_of_a_program_that_does_not_know_it() {
    let mut redis = match Redis::start("allkeys-lru", "300mb").await {
        Ok(redis) => redis,
        Err(why) => return skip("Redis", &why),
    };
    redis.fill(7_000, 32 << 10);
    let before = redis.process.counted();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("broker.sock");
    let broker = Broker::open(Options {
        settings: Settings {
            // Less than the program has: it is told to have what there is.
            budget: 200 * MIB,
            ..Settings::of_budget(200 * MIB)
        },
        data: folder.path().join("data"),
        socket: socket.clone(),
        network: None,
    })
    .await
    .unwrap();
    let stopping = CancellationToken::new();
    let (statuses, mut status) = tokio::sync::watch::channel(None);
    let serving = tokio::spawn(broker.run(stopping.clone(), move |status| {
        statuses.send_replace(Some(status));
    }));
    let adapter = Adapter::parse("redis", &redis.options()).unwrap();
    let endpoint = Endpoint::parse(socket.to_str().unwrap(), None).unwrap();
    let adapting = tokio::spawn(run_adapter(adapter, endpoint, None, stopping.clone()));
    until("the kernel counts less than the budget", || {
        redis.process.counted() <= 200 * MIB
    })
    .await;
    let after = redis.process.counted();
    report(
        "Redis with a broker",
        before,
        200 * MIB,
        after,
        Duration::ZERO,
    );
    status.wait_for(|status| status.is_some()).await.unwrap();
    redis.process.kill();
    let ended = adapting.await.unwrap().unwrap();
    assert_eq!(ended, Ended::Gone);
    stopping.cancel();
    serving.await.unwrap();
}

/// The adapter of a group limits it, and the program in it does not notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_limited_when_its_usage_allows_it() {
    let mut group = match Group::start(48) {
        Ok(group) => group,
        Err(why) => return skip("a control group", &why),
    };
    let options = format!("name=any,path={},floor=8MB", group.folder.display());
    let watched = Watched::start("cgroup", &options).await;
    let hello = watched.hello();
    assert_eq!(hello.cgroup.as_deref(), group.folder.to_str());
    assert_eq!(hello.floor, 8 * MIB);
    assert!(hello.used > 40 * MIB, "{}", hello.used);
    // It gives nothing, so it is not limited to less than it has.
    watched.tell(16 * MIB).await;
    assert!(watched.participant.target() > 40 * MIB);
    assert!(group.limit() > 16 * MIB);
    watched.tell(128 * MIB).await;
    assert_eq!(watched.participant.target(), 128 * MIB);
    assert_eq!(group.limit(), 128 * MIB);
    assert!(watched.participant.demand().is_some());
    group.process.kill();
    watched.sees_the_end().await;
}
