// SPDX-License-Identifier: Apache-2.0
//! TLS between controller and switch, with certificates that hold and that do not.

use p4runtime::{Error, P4Info, Session, Target, Tls};
use p4server::Fake;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tls::server::{Files, Keys};
use tokio::sync::watch;

/// Certificates of one test.
struct Lab {
    directory: TempDir,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
struct Pair {
    cert: PathBuf,
    key: PathBuf,
}

struct Authority {
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Lab {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn authority(&self, name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let file = self.write(&format!("{name}.pem"), &made.pem());
        Authority { file, issuer: Issuer::new(params, key) }
    }

    /// A certificate for `host`, which is valid until the end of a year.
    fn sign(&self, authority: &Authority, host: &str, name: &str, until: i32) -> Pair {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 12, 31);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &authority.issuer).unwrap();
        Pair {
            cert: self.write(&format!("{name}.pem"), &made.pem()),
            key: self.write(&format!("{name}.key"), &key.serialize_pem()),
        }
    }
}

/// Serves with a certificate; callers need one of `callers`.
async fn serve(
    own: &Pair,
    callers: &Authority,
) -> (Fake, watch::Sender<Arc<rustls::ServerConfig>>) {
    let (sender, keys) = watch::channel(config(own, callers));
    (Fake::start_with(1, Some(keys)).await.unwrap(), sender)
}

fn config(own: &Pair, callers: &Authority) -> Arc<rustls::ServerConfig> {
    let Pair { cert, key } = own.clone();
    let files = Files { cert, key, client_ca: callers.file.clone(), client_crl: Vec::new() };
    Arc::new(Keys::read(&files).unwrap().config().unwrap())
}

fn trust(ca: &Authority, own: Option<&Pair>) -> Tls {
    let own = own.map(|Pair { cert, key }| (cert.clone(), key.clone()));
    Tls { ca: ca.file.clone(), own, server_name: None }
}

/// Asks for the program, as the first call of a session.
async fn ask(address: String, tls: Option<Tls>) -> Result<Option<u64>, Error> {
    let target = Target { address, tls, device: 1, election: 1 };
    let info = Arc::new(P4Info::decode(p4src::BMV2_P4INFO).unwrap());
    let (session, _stream) = Session::connect(&target, info).await?;
    session.cookie().await
}

/// Fails with all of these words.
async fn fails(address: String, tls: Option<Tls>, words: &[&str]) {
    let error = ask(address, tls).await.unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn certificates_of_one_authority_are_accepted() {
    let lab = Lab::new();
    let ca = lab.authority("ca");
    let (own, linkd) = (lab.sign(&ca, "127.0.0.1", "p4", 2099), lab.sign(&ca, "l", "l", 2099));
    let (fake, _keys) = serve(&own, &ca).await;
    assert!(fake.address().starts_with("https://127.0.0.1:"));
    assert_eq!(ask(fake.address(), Some(trust(&ca, Some(&linkd)))).await.unwrap(), None);
}

#[tokio::test]
async fn certificates_of_two_authorities_and_another_name_are_accepted() {
    let lab = Lab::new();
    let (switches, linkds) = (lab.authority("switches"), lab.authority("linkds"));
    let own = lab.sign(&switches, "p4.lab", "p4", 2099);
    let linkd = lab.sign(&linkds, "linkd", "linkd", 2099);
    let (fake, _keys) = serve(&own, &linkds).await;
    let tls = trust(&switches, Some(&linkd));
    let words = ["another name (p4.lab)", "give that as `server_name` of [switch] in the box file"];
    fails(fake.address(), Some(tls.clone()), &words).await;
    let tls = Tls { server_name: Some("p4.lab".into()), ..tls };
    assert_eq!(ask(fake.address(), Some(tls)).await.unwrap(), None);
}

#[tokio::test]
async fn server_that_asks_for_no_certificate_gets_none() {
    let lab = Lab::new();
    let ca = lab.authority("ca");
    let Pair { cert, key } = lab.sign(&ca, "127.0.0.1", "p4", 2099);
    let (cert, key) =
        (identity::read_certificates(&cert).unwrap(), identity::read_key(&key).unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(cert, key)
        .unwrap();
    config.alpn_protocols = vec![tls::HTTP2.to_vec()];
    let (_sender, keys) = watch::channel(Arc::new(config));
    let fake = Fake::start_with(1, Some(keys)).await.unwrap();
    assert_eq!(ask(fake.address(), Some(trust(&ca, None))).await.unwrap(), None);
}

#[tokio::test]
async fn invalid_certificates_are_refused_with_file_limit_and_remedy() {
    let lab = Lab::new();
    let (ca, other) = (lab.authority("ca"), lab.authority("other"));
    let own = lab.sign(&ca, "127.0.0.1", "p4", 2099);
    let linkd = lab.sign(&ca, "linkd", "linkd", 2099);
    let (fake, keys) = serve(&own, &ca).await;
    let to = || fake.address();
    // Of the switch.
    let file = other.file.display().to_string();
    let words = ["not signed by an authority of", &file, "`ca` of [switch]", "give the ca.pem"];
    fails(to(), Some(trust(&other, Some(&linkd))), &words).await;
    // Of linkd.
    let words = ["asks for a certificate, and got none", "`cert` and `key` of [switch] in the box"];
    fails(to(), Some(trust(&ca, None)), &words).await;
    let stranger = lab.sign(&other, "linkd", "stranger", 2099);
    let words = ["does not know the authority that signed your certificate", "`cert` and `key`"];
    fails(to(), Some(trust(&ca, Some(&stranger))), &words).await;
    let old = lab.sign(&ca, "linkd", "old", 2021);
    let file = old.cert.display().to_string();
    let words = [file.as_str(), "it expired at 2021-12-31T", "make another"];
    fails(to(), Some(trust(&ca, Some(&old))), &words).await;
    let mixed = Pair { key: own.key.clone(), ..linkd.clone() };
    let file = linkd.cert.display().to_string();
    let words = ["not that of the certificate in", &file, "made together"];
    fails(to(), Some(trust(&ca, Some(&mixed))), &words).await;
    let none = Tls { ca: "/nowhere/ca.pem".into(), ..trust(&ca, None) };
    fails(to(), Some(none), &["cannot read /nowhere/ca.pem: No such file"]).await;
    std::fs::set_permissions(&linkd.key, Permissions::from_mode(0o644)).unwrap();
    let file = linkd.key.display().to_string();
    fails(to(), Some(trust(&ca, Some(&linkd))), &[&file, "mode 0644", "chmod 600"]).await;
    std::fs::set_permissions(&linkd.key, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(ask(to(), Some(trust(&ca, Some(&linkd)))).await.unwrap(), None);
    // A certificate that expires while the server runs, and its successor.
    let short = lab.sign(&ca, "127.0.0.1", "short", 2021);
    let (cert, key) = (&short.cert, &short.key);
    let chain = identity::read_certificates(cert).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let expired = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, identity::read_key(key).unwrap());
    keys.send_replace(Arc::new(expired.unwrap()));
    let words = ["has expired at 2021-12-31T", "and it is 20", "linkctl pki server"];
    fails(to(), Some(trust(&ca, Some(&linkd))), &words).await;
    keys.send_replace(config(&own, &ca));
    assert_eq!(ask(to(), Some(trust(&ca, Some(&linkd)))).await.unwrap(), None);
}

#[tokio::test]
async fn encrypted_and_plain_ends_do_not_meet() {
    let lab = Lab::new();
    let ca = lab.authority("ca");
    let own = lab.sign(&ca, "127.0.0.1", "p4", 2099);
    let (encrypted, _keys) = serve(&own, &ca).await;
    let plain = Fake::start(1).await.unwrap();
    let https = plain.address().replace("http:", "https:");
    fails(https, Some(trust(&ca, Some(&own))), &["does not speak TLS", "does it serve TLS?"]).await;
    let http = encrypted.address().replace("https:", "http:");
    fails(http.clone(), None, &[&http, "if it serves TLS, write https"]).await;
}

/// Connections that send nothing, from the address of the controller.
#[tokio::test]
async fn callers_without_a_certificate_do_not_keep_a_controller_out() {
    let lab = Lab::new();
    let ca = lab.authority("ca");
    let (own, linkd) = (lab.sign(&ca, "127.0.0.1", "p4", 2099), lab.sign(&ca, "l", "l", 2099));
    let (fake, _keys) = serve(&own, &ca).await;
    let place = fake.address().replace("https://", "");
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(tokio::net::TcpStream::connect(&place).await.unwrap());
    }
    let asked = ask(fake.address(), Some(trust(&ca, Some(&linkd))));
    let asked = tokio::time::timeout(std::time::Duration::from_secs(3), asked).await;
    assert_eq!(asked.expect("it is kept out").unwrap(), None);
}
