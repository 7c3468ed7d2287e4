//! `bench` over TLS and TCP, on the sockets of the load itself.

mod common;

use common::{contract, run};

/// From now on the server takes nobody over TCP but who speaks TLS.
fn only_over_tls(server: &sandbox::Sandbox) {
    // MariaDB was told so at its start.
    if server.build().flavor != sandbox::Flavor::Postgres {
        return;
    }
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(server.datadir().join("pg_hba.conf"), rules).unwrap();
    let mut admin = wire::blocking::Client::connect(&server.target(None)).unwrap();
    admin.query("SELECT pg_reload_conf()").unwrap();
    let open = wire::Target { tls: wire::TlsMode::Disabled, ..server.tcp_target(None).unwrap() };
    common::wait_until(std::time::Duration::from_secs(300), "the new rules", || {
        wire::blocking::Client::connect(&open).is_err()
    });
}

/// From now on the user of `login` has to show a certificate of the sandbox's authority over TCP.
fn only_with_a_certificate(server: &sandbox::Sandbox, login: &str) {
    let user = login.split(':').next().unwrap();
    let mut admin = wire::blocking::Client::connect(&server.target(None)).unwrap();
    if server.build().flavor != sandbox::Flavor::Postgres {
        admin.query(&format!("ALTER USER {user}@'127.0.0.1' REQUIRE X509")).unwrap();
        return;
    }
    let word =
        if server.build().numbers() >= sandbox::build::Version(12, 0, 0, 0) { "verify-ca" } else { "1" };
    let rules =
        format!("local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256 clientcert={word}\n");
    std::fs::write(server.datadir().join("pg_hba.conf"), rules).unwrap();
    admin.query("SELECT pg_reload_conf()").unwrap();
    let without = server.tcp_target(None).unwrap();
    common::wait_until(std::time::Duration::from_secs(300), "the new rules", || {
        wire::blocking::Client::connect(&without).is_err()
    });
}

#[test]
fn the_sessions_of_a_bench_are_encrypted_and_the_server_is_checked() {
    for flavor in ["mariadb", "postgres"] {
        let server = sandbox::testing::server_with(flavor, |spec| {
            spec.listen = sandbox::Listen::FreePort;
            spec.tls = true;
            if flavor == "mariadb" {
                spec.settings.insert("require_secure_transport".into(), "ON".into());
            }
        });
        let Some(server) = server else { return };
        only_over_tls(&server);
        let target = server.tcp_target(None).unwrap();
        let wire::Endpoint::Tcp { port, .. } = target.endpoint else { panic!("no port") };
        let scheme = if flavor == "postgres" { "postgres" } else { "mysql" };
        let login = format!("{}:{}", target.user, target.password.reveal());
        let bench = |tls: &str| {
            let url = format!("{scheme}://{login}@127.0.0.1:{port}/sbtest?{tls}");
            run(&[
                "bench",
                "oltp_read_write",
                "--server",
                &url,
                "--sessions",
                "3",
                "--time",
                "1s",
                "--warmup",
                "0s",
                "-o",
                "table_size=1000",
                "--json",
                "-",
            ])
        };
        // The proof that what follows is encrypted: without TLS the server takes nobody.
        bench("tls=disabled").expect(3, &[]);
        let ca = server.tls_ca().unwrap().display().to_string();
        for tls in [
            "tls=required".to_owned(),
            format!("tls=verify-ca&tls-ca={ca}"),
            format!("tls=verify-full&tls-ca={ca}"),
        ] {
            let done = bench(&tls).expect(0, &[]);
            let line: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap();
            contract::check_line(&line);
            assert!(line["transactions"].as_u64() > Some(0), "{flavor} {tls}: {line}");
            assert_eq!(
                (&line["outcomes"]["connection"], &line["gates"]["consistency"]["finding"]),
                (&0.into(), &"held".into()),
                "{line}"
            );
        }
        let shown = server.tls_client().unwrap();
        let [certificate, key] =
            [shown.certificate, shown.key].map(|path| path.unwrap().display().to_string());
        only_with_a_certificate(&server, &login);
        bench("tls=required").expect(3, &[]);
        let files = match flavor {
            "postgres" => format!("sslmode=verify-ca&sslrootcert={ca}&sslcert={certificate}&sslkey={key}"),
            _ => format!("tls=verify-ca&tls-ca={ca}&tls-cert={certificate}&tls-key={key}"),
        };
        let done = bench(&files).expect(0, &[]);
        let line: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap();
        assert!(line["transactions"].as_u64() > Some(0), "{flavor}: {line}");

        // Somebody else's authority, which the sandbox of another server has.
        let stranger = sandbox::testing::server_with(flavor, |spec| {
            spec.listen = sandbox::Listen::FreePort;
            spec.tls = true;
        });
        let stranger = stranger.unwrap();
        let other = stranger.tls_ca().unwrap();
        bench(&format!("tls=verify-ca&tls-ca={}", other.display()))
            .expect(3, &["does not come from the authority in tls-ca"]);
    }
}
