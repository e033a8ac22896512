// SPDX-License-Identifier: Apache-2.0
//! Certificates as linkctl makes them, and linkd over TCP with them.

use crate::lab::{Lab, text};
use linkd::{Listen, Security, TlsFiles};
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn linkctl(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkctl"));
    for name in ["SOCKET", "SERVER", "CA", "CERT", "KEY"] {
        command.env_remove(format!("LINKEMU_{name}"));
    }
    command.current_dir(directory).args(line.split_whitespace()).output().unwrap()
}

fn done(directory: &Path, line: &str) -> String {
    let output = linkctl(directory, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn fails(directory: &Path, code: i32, line: &str) -> String {
    let output = linkctl(directory, line);
    assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
    text(&output.stderr)
}

/// linkd over TCP, with an authority in ca/ and certificates of all roles.
fn secure() -> (Lab, SocketAddr) {
    let (lab, address) = Lab::with(|directory| {
        done(directory, "pki ca --name lab -d ca");
        done(directory, "pki server --ca ca --host linkemu.lab --ip 127.0.0.1 --host localhost");
        for role in ["viewer", "operator"] {
            done(directory, &format!("pki client --ca ca --name a-{role} --role {role}"));
        }
        let at = |name: &str| directory.join("ca").join(name);
        let tls = TlsFiles {
            cert: at("linkemu.lab.pem"),
            key: at("linkemu.lab.key"),
            client_ca: at("ca.pem"),
            client_crl: Vec::new(),
        };
        let address = "127.0.0.1:0".parse().unwrap();
        Security { listen: Some(Listen { address, tls }), ..Security::default() }
    });
    (lab, address.unwrap())
}

fn with(address: SocketAddr, who: &str) -> String {
    format!("--server {address} --ca ca/ca.pem --cert ca/{who}.pem --key ca/{who}.key")
}

#[test]
fn doctor_with_a_server_checks_the_machine_of_that_server() {
    let (lab, address) = secure();
    let viewer = with(address, "a-viewer");
    let output = lab.run(&format!("-o json {viewer} doctor"));
    let told: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let bad = told["bad"].as_u64().unwrap();
    assert_eq!(output.status.code(), Some(if bad > 0 { 4 } else { 0 }), "{told}");
    let of = |name: &str| {
        let mut checks = told["checks"].as_array().unwrap().iter();
        checks.find(|check| check["check"] == name).unwrap()
    };
    // Only linkd compares the version of the dataplane with its own.
    assert!(of("dataplane")["found"].as_str().unwrap().contains("; linkd is"), "{told}");
    assert_eq!(of("linkd")["level"], "FINDING_LEVEL_OK");
    let refused = lab.fails(2, &format!("{viewer} doctor --iface lo"));
    assert!(refused.contains("--server is another one"), "{refused}");
}

#[test]
fn denied_command_names_the_needed_role() {
    let (lab, address) = secure();
    let told = lab.fails(1, &format!("{} set profile viasat2", with(address, "a-viewer")));
    assert!(told.contains("needs the role operator") && told.contains("gives viewer"), "{told}");
    let told = lab.fails(1, &format!("{} -o json set rate 1Mbit/s", with(address, "a-viewer")));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["error"]["code"], "permission_denied");
    lab.done(&format!("{} set profile geo-600", with(address, "a-operator")));
    // By the environment as well, and by a name.
    let port = address.port();
    let mut command = lab.command("show");
    command.env("LINKEMU_SERVER", format!("localhost:{port}"));
    for (name, file) in [("CA", "ca.pem"), ("CERT", "a-viewer.pem"), ("KEY", "a-viewer.key")] {
        command.env(format!("LINKEMU_{name}"), lab.at("ca").join(file));
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("geo-600"));
}

#[test]
fn certificate_faults_are_explained() {
    let (lab, address) = secure();
    let directory = lab.directory.path();
    done(directory, "pki ca --name other -d other");
    done(directory, "pki client --ca other --name a-viewer --role viewer");
    let port = address.port();
    let good = with(address, "a-viewer");
    for (code, line, expected) in [
        // Theirs.
        (3, good.replace("ca/ca.pem", "other/ca.pem"), "not signed by an authority of --ca"),
        (3, good.replace("127.0.0.1", "127.0.0.2"), "cannot reach linkd"),
        // Ours.
        (3, good.replace("ca/a-viewer", "other/a-viewer"), "does not know the authority"),
        (3, good.replace("ca/a-viewer", "ca/linkemu.lab"), "is it one of a client?"),
        // Files.
        (1, good.replace("a-viewer.key", "a-operator.key"), "not that of the certificate in"),
        (1, good.replace("a-viewer.key", "none.key"), "cannot read ca/none.key"),
        (1, good.replace("--ca ca/ca.pem", "--ca ca/ca.key"), "holds no certificate"),
        // Options.
        (2, format!("--server 127.0.0.1:{port} --ca ca/ca.pem"), "needs --cert, --key too"),
        (2, "--server 127.0.0.1".to_owned(), "HOST:PORT"),
        // No listener.
        (3, good.replace(&port.to_string(), "1"), "nobody listens there"),
    ] {
        let told = lab.fails(code, &format!("{line} show"));
        assert!(told.contains(expected), "{line}: {told}");
    }
}

#[test]
fn server_with_another_name_is_refused() {
    let (lab, address) = Lab::with(|directory| {
        done(directory, "pki ca --name lab -d ca");
        done(directory, "pki server --ca ca --host linkemu.lab");
        done(directory, "pki client --ca ca --name a --role viewer");
        let at = |name: &str| directory.join("ca").join(name);
        let (cert, key) = (at("linkemu.lab.pem"), at("linkemu.lab.key"));
        let tls = TlsFiles { cert, key, client_ca: at("ca.pem"), client_crl: Vec::new() };
        let address = "127.0.0.1:0".parse().unwrap();
        Security { listen: Some(Listen { address, tls }), ..Security::default() }
    });
    let told = lab.fails(3, &format!("{} show", with(address.unwrap(), "a")));
    assert!(told.contains("is for another name (linkemu.lab)"), "{told}");
}

#[test]
fn openssl_takes_what_linkctl_makes() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    done(at, "pki ca --name lab -d ca");
    done(at, "pki server --ca ca --host linkemu.lab --ip 10.0.0.1 --ip fd00::1 -d box");
    done(at, "pki client --ca ca --name ci-7 --role operator --days 30");
    let openssl = |line: &str| {
        let output = Command::new("openssl").current_dir(at).args(line.split(' ')).output();
        let output = output.expect("openssl is needed: apt-get install openssl");
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "openssl {line}: {told}");
        told
    };
    for line in [
        "verify -x509_strict -CAfile ca/ca.pem ca/ca.pem",
        "verify -x509_strict -CAfile ca/ca.pem -purpose sslserver -verify_hostname linkemu.lab box/linkemu.lab.pem",
        "verify -x509_strict -CAfile ca/ca.pem -purpose sslserver -verify_ip fd00::1 box/linkemu.lab.pem",
        "verify -x509_strict -CAfile ca/ca.pem -purpose sslclient ca/ci-7.pem",
    ] {
        assert!(openssl(line).contains(": OK"), "{line}");
    }
    let shown = openssl("x509 -in ca/ci-7.pem -noout -text");
    let shown = shown.replace(" = ", "=");
    for part in ["CN=ci-7", "URI:linkemu:role:operator", "CA:FALSE", "TLS Web Client"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    openssl("pkey -in ca/ci-7.key -check -noout");
    // And linkctl reads what openssl makes.
    openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout o.key -out o.pem \
         -days 2 -subj /O=lab/CN=bob -addext subjectAltName=URI:linkemu:role:admin \
         -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=clientAuth",
    );
    let shown = done(at, "pki show o.pem");
    for part in ["name    bob", "role    admin", "kind    client", "issuer  bob"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn revoked_certificates_stay_in_the_list_and_openssl_refuses_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    done(at, "pki ca --name lab -d ca");
    for name in ["a", "b", "c"] {
        done(at, &format!("pki client --ca ca --name {name} --role viewer"));
    }
    let is_good = |name: &str| {
        let line = format!("verify -crl_check -CAfile ca/ca.pem -CRLfile ca/ca.crl ca/{name}.pem");
        let output =
            Command::new("openssl").current_dir(at).args(line.split(' ')).output().unwrap();
        let told = text(&output.stderr);
        assert!(output.status.success() || told.contains("certificate revoked"), "{told}");
        output.status.success()
    };
    let told = done(at, "pki revoke --ca ca");
    assert!(told.contains("ca/ca.crl revokes 0 certificates"), "{told}");
    assert_eq!(["a", "b", "c"].map(is_good), [true, true, true]);
    done(at, "pki revoke --ca ca ca/a.pem");
    assert_eq!(["a", "b", "c"].map(is_good), [false, true, true]);
    let told = done(at, "-o json pki revoke --ca ca ca/a.pem ca/c.pem");
    assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["revoked"], 2);
    assert_eq!(["a", "b", "c"].map(is_good), [false, true, false]);
    done(at, "pki ca --name other -d other");
    done(at, "pki client --ca other --name x --role viewer");
    for wrong in ["other/x.pem", "ca/ca.pem"] {
        let told = fails(at, 1, &format!("pki revoke --ca ca {wrong}"));
        assert!(told.contains("only the authority that did"), "{told}");
    }
}

#[test]
fn files_have_their_modes_and_nothing_is_replaced_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let mode = |name: &str| std::fs::metadata(at.join(name)).unwrap().permissions().mode() & 0o7777;
    let read = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
    let told = done(at, "pki ca --name lab -d ca");
    assert!(told.contains("keep ca/ca.key here"), "{told}");
    assert_eq!((mode("ca/ca.key"), mode("ca/ca.pem")), (0o600, 0o644));
    let before = read("ca/ca.key");
    let told = fails(at, 1, "pki ca --name again -d ca");
    assert!(told.contains("ca/ca.key is there already") && told.contains("--force"), "{told}");
    assert_eq!(read("ca/ca.key"), before);

    let made = done(at, "-o json pki client --ca ca --name bob --role viewer --directory out");
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!((&made["key"], &made["role"]), (&"out/bob.key".into(), &"viewer".into()));
    assert_eq!((mode("out/bob.key"), mode("out/bob.pem")), (0o600, 0o644));
    std::fs::remove_file(at.join("out/bob.key")).unwrap();
    fails(at, 1, "pki client --ca ca --name bob --role viewer -d out");
    assert!(!at.join("out/bob.key").exists());
    done(at, "pki client --ca ca --name bob --role admin -d out --force");
    assert!(done(at, "pki show out/bob.pem").contains("role    admin"));
    let left = std::fs::read_dir(at.join("out")).unwrap().count();
    assert_eq!(left, 2, "nothing else is left there");

    // An authority that cannot sign.
    for (spoil, expected) in
        [("out/bob.key", "not the key of the certificate"), ("out/bob.pem", "no private key")]
    {
        std::fs::create_dir_all(at.join("bad")).unwrap();
        std::fs::copy(at.join("ca/ca.pem"), at.join("bad/ca.pem")).unwrap();
        std::fs::copy(at.join(spoil), at.join("bad/ca.key")).unwrap();
        std::fs::set_permissions(at.join("bad/ca.key"), PermissionsExt::from_mode(0o600)).unwrap();
        let told = fails(at, 1, "pki client --ca bad --name eve --role admin");
        assert!(told.contains(expected), "{told}");
        assert!(!at.join("bad/eve.pem").exists());
    }
    std::fs::set_permissions(at.join("ca/ca.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let told = fails(at, 1, "pki client --ca ca --name eve --role admin");
    assert!(told.contains("mode 0644"), "{told}");
    let told = fails(at, 1, "pki client --ca none --name eve --role admin");
    assert!(told.contains("linkctl pki ca"), "{told}");
    std::fs::set_permissions(at.join("ca/ca.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let told = fails(at, 1, "pki client --ca ca --name eve --role admin --days 4000");
    assert!(told.contains("fewer --days"), "{told}");
    let told = fails(at, 1, "pki show ca/ca.key");
    assert!(told.contains("holds no certificate"), "{told}");
}
