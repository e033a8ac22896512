// SPDX-License-Identifier: Apache-2.0
//! Authorities and certificates, good and bad, and TLS with them.

use hyper_util::rt::TokioIo;
use linkd::TlsFiles;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use time::{Duration, OffsetDateTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Serial number of the next certificate.
static SERIAL: AtomicU64 = AtomicU64::new(1);

pub struct Authority {
    pub pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Pair {
    pub pem: String,
    pub key: String,
    pub der: CertificateDer<'static>,
}

/// Properties of a certificate.
pub struct Ask<'a> {
    pub name: &'a str,
    pub uris: &'a [&'a str],
    pub purpose: ExtendedKeyUsagePurpose,
    /// From and until when, in days from now.
    pub days: (i64, i64),
    /// And so many seconds longer.
    pub seconds: i64,
}

impl<'a> Ask<'a> {
    pub fn client(name: &'a str, uris: &'a [&'a str]) -> Self {
        Self { name, uris, purpose: ExtendedKeyUsagePurpose::ClientAuth, days: (-1, 1), seconds: 0 }
    }

    pub fn server() -> Self {
        let purpose = ExtendedKeyUsagePurpose::ServerAuth;
        Self { name: "linkemu.lab", uris: &[], purpose, days: (-1, 1), seconds: 0 }
    }

    fn params(&self) -> CertificateParams {
        let mut params =
            CertificateParams::new(["linkemu.lab", "127.0.0.1"].map(str::to_owned)).unwrap();
        let uri = |uri: &&str| SanType::URI((*uri).try_into().unwrap());
        params.subject_alt_names.extend(self.uris.iter().map(uri));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, self.name);
        params.extended_key_usages = vec![self.purpose.clone()];
        let now = OffsetDateTime::now_utc();
        params.not_before = now + Duration::days(self.days.0);
        params.not_after = now + Duration::days(self.days.1) + Duration::seconds(self.seconds);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(serial.into());
        params
    }

    pub fn self_signed(&self) -> Pair {
        let key = KeyPair::generate().unwrap();
        let made = self.params().self_signed(&key).unwrap();
        Pair { pem: made.pem(), key: key.serialize_pem(), der: made.der().clone() }
    }
}

impl Authority {
    pub fn new() -> Self {
        Self::named("lab")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        Self { pem: made.pem(), der: made.der().clone(), issuer: Issuer::new(params, key) }
    }

    pub fn sign(&self, ask: &Ask<'_>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let made = ask.params().signed_by(&key, &self.issuer).unwrap();
        Pair { pem: made.pem(), key: key.serialize_pem(), der: made.der().clone() }
    }

    /// The list that revokes some certificates, in PEM.
    pub fn crl(&self, revoked: &[&Pair]) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = revoked.iter().map(|pair| {
            let serial = identity::Certificate::parse(&pair.der).unwrap().serial;
            let serial: Vec<u8> =
                serial.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            RevokedCertParams {
                serial_number: serial.into(),
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            }
        });
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::days(1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// Puts a server's files into a directory.
    pub fn files(&self, directory: &Path, server: &Pair) -> TlsFiles {
        let at = |name: &str| directory.join(name);
        std::fs::write(at("ca.pem"), &self.pem).unwrap();
        std::fs::write(at("server.pem"), &server.pem).unwrap();
        std::fs::write(at("server.key"), &server.key).unwrap();
        std::fs::set_permissions(at("server.key"), Permissions::from_mode(0o600)).unwrap();
        TlsFiles {
            cert: at("server.pem"),
            key: at("server.key"),
            client_ca: at("ca.pem"),
            client_crl: Vec::new(),
        }
    }

    /// A client that believes this authority.
    pub fn client(&self, own: Option<&Pair>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                use rustls::pki_types::pem::PemObject;
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![own.der.clone()], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

pub async fn tls(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    // Otherwise each call waits for a delayed acknowledgement.
    stream.set_nodelay(true)?;
    connector.connect(ServerName::try_from(name).unwrap(), stream).await
}

/// One that connects when it is used.
pub fn channel(connector: TlsConnector, address: SocketAddr, name: &'static str) -> Channel {
    let connect = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move { tls(&connector, address, name).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://linkd").connect_with_connector_lazy(connect)
}
