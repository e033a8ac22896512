// SPDX-License-Identifier: Apache-2.0
//! Whether a request comes from our own page: checks of `Host`, `Origin` and the path, and the cookie.
//!
//! - `Host` has to be a name of this box, so that a page of another name that resolves to our address
//!   (DNS rebinding) is refused.
//! - A POST needs `Origin` with our scheme and the same host, and `Sec-Fetch-Site: same-origin` if it
//!   has that header, so that another page cannot send one with the browser's cookie or certificate
//!   (cross-site request forgery). Browsers send `Origin` with every POST. A program with a client
//!   certificate may omit it if it sends no header that only browsers send. In addition the content
//!   types that [`super::site`] accepts are none that a form or a simple request can have.

use super::WebError;
use crate::tls::Keys;
use http::header::{COOKIE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Request};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tonic::{Code, Status};

const COOKIE_NAME: &str = "linkemu-session";
/// A cookie that no subdomain and no plain HTTP can set (RFC 6265bis, section 4.1.3.2).
const SECURE_COOKIE_NAME: &str = "__Host-linkemu-session";
const FETCH_SITE: &str = "sec-fetch-site";

/// The names of this box, and the checks.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    pub address: SocketAddr,
    /// As given, in lower case.
    hosts: Vec<String>,
    keys: Option<Arc<Keys>>,
}

impl Guard {
    pub fn new(
        address: SocketAddr,
        hosts: Vec<String>,
        keys: Option<Arc<Keys>>,
    ) -> Result<Self, WebError> {
        for host in &hosts {
            let written = match host.parse::<IpAddr>() {
                Ok(IpAddr::V6(_)) => format!("[{host}]"),
                _ => host.clone(),
            };
            let authority: Option<Authority> = written.parse().ok();
            if authority.is_none_or(|authority| authority.host() != written || host.is_empty()) {
                return Err(WebError::Host(host.clone()));
            }
        }
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(Self { address, hosts, keys })
    }

    pub fn is_secure(&self) -> bool {
        self.keys.is_some()
    }

    /// A host under which a browser reaches this box: one that was given, of the certificate, or
    /// the address.
    pub fn host(&self) -> String {
        let certified = self.keys.as_ref().map(|keys| keys.hosts());
        let certified = certified.iter().flat_map(|hosts| hosts.iter());
        let named = self.hosts.iter().chain(certified).next().cloned();
        let ip = match self.address.ip() {
            ip if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            ip => ip,
        };
        // The certificate of a secure one has no loopback address as a rule.
        let named =
            named.filter(|_| self.is_secure() || !ip.is_loopback() || !self.hosts.is_empty());
        named.unwrap_or_else(|| ip.to_string())
    }

    /// The host that a request is for, if it is this box.
    ///
    /// # Errors
    /// PERMISSION_DENIED.
    pub fn host_of<B>(
        &self,
        request: &Request<B>,
        local: Option<SocketAddr>,
    ) -> Result<Authority, Status> {
        let mut given = request.headers().get_all(HOST).iter();
        let header = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().ok().and_then(|host| host.parse().ok()),
            (None, _) => None,
            _ => return Err(Status::permission_denied("the request has several Host headers")),
        };
        // That of HTTP/2, and of a request to a proxy.
        let authority = match (request.uri().authority().cloned(), header) {
            (Some(a), Some(b)) if a != b => {
                return Err(Status::permission_denied("the request is for two hosts"));
            }
            (Some(authority), _) | (None, Some(authority)) => authority,
            (None, None) => {
                return Err(Status::permission_denied("the request has no valid Host header"));
            }
        };
        if authority.as_str().contains('@') || !self.knows(authority.host(), local) {
            return Err(Status::permission_denied(format!(
                "{:?} is no name of this box: if it should be, give it to linkd with --web-host",
                authority.host()
            )));
        }
        Ok(authority)
    }

    fn knows(&self, host: &str, local: Option<SocketAddr>) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let local = local.map(|local| local.ip().to_canonical());
            if ip.to_canonical().is_loopback() || local == Some(ip.to_canonical()) {
                return true;
            }
        }
        let certified = self.keys.as_ref().map(|keys| keys.hosts());
        let mut certified = certified.iter().flat_map(|hosts| hosts.iter());
        bare == "localhost"
            || self.hosts.iter().any(|known| known == bare)
            || certified.any(|known| known.eq_ignore_ascii_case(bare))
    }

    /// Whether a request that may change something comes from our own page.
    ///
    /// # Errors
    /// PERMISSION_DENIED.
    pub fn check_origin(
        &self,
        headers: &HeaderMap,
        host: &Authority,
        is_certified: bool,
    ) -> Result<(), Status> {
        let denied = |what: &str, value: &str| {
            Err(Status::permission_denied(format!(
                "{what} {value:?} is not that of this page, {host}: another page may not call linkd"
            )))
        };
        let sites: Vec<_> = headers.get_all(FETCH_SITE).iter().collect();
        if let Some(site) = sites.iter().find(|site| **site != "same-origin") {
            return denied("Sec-Fetch-Site", &String::from_utf8_lossy(site.as_bytes()));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = match (origins.next(), origins.next()) {
            (Some(origin), None) => String::from_utf8_lossy(origin.as_bytes()).to_ascii_lowercase(),
            (None, _) if is_certified && sites.is_empty() && !headers.contains_key(COOKIE) => {
                return Ok(());
            }
            (None, _) => {
                return Err(Status::permission_denied(
                    "a POST needs the header Origin with the address of this page, such as \
                     http://127.0.0.1:8480",
                ));
            }
            _ => return Err(Status::permission_denied("the request has several Origin headers")),
        };
        let own = host.as_str().to_ascii_lowercase();
        let same = match origin.split_once("://") {
            Some(("https", origin)) => origin == own,
            // A page over plain HTTP can be another one's.
            Some(("http", origin)) => !self.is_secure() && origin == own,
            _ => false,
        };
        if same { Ok(()) } else { denied("Origin", &origin) }
    }

    /// The ids of sessions among the cookies, in their order. Only the name that we set: other pages
    /// of the same host can set the plain one.
    pub fn session_ids<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = if self.is_secure() { SECURE_COOKIE_NAME } else { COOKIE_NAME };
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = cookies.flat_map(|value| value.split(';'));
        cookies.filter_map(move |cookie| {
            let (key, id) = cookie.trim().split_once('=')?;
            (key == name).then_some(id)
        })
    }

    /// The header that sets the cookie of a session, or removes it.
    pub fn cookie(&self, id: &str, seconds: u64) -> String {
        let (name, secure) = match self.is_secure() {
            true => (SECURE_COOKIE_NAME, "; Secure"),
            false => (COOKIE_NAME, ""),
        };
        format!("{name}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }
}

/// Whether a path has a part that could lead out of a directory, in any spelling.
///
/// # Errors
/// INVALID_ARGUMENT.
pub(super) fn check_path(path: &str) -> Result<(), Status> {
    // No path of ours needs them.
    let strange = |byte: u8| matches!(byte, b'%' | b'\\' | b';') || !byte.is_ascii_graphic();
    let is_relative = path.split('/').any(|part| matches!(part, "." | ".."));
    if !path.starts_with('/') || path.contains("//") || is_relative || path.bytes().any(strange) {
        return Err(Status::new(
            Code::InvalidArgument,
            "the path has a part that no path of linkd has: \"..\", \"//\", \"%\", \"\\\" or \";\"",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn guard(address: &str, hosts: &[&str]) -> Guard {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Guard::new(address.parse().unwrap(), hosts, None).unwrap()
    }

    fn host_of(guard: &Guard, host: &str) -> Result<Authority, Status> {
        let request = Request::builder().uri("/").header(HOST, host).body(()).unwrap();
        guard.host_of(&request, Some("192.0.2.7:8480".parse().unwrap()))
    }

    #[test]
    fn host_is_loopback_the_own_address_or_a_given_name() {
        let guard = guard("0.0.0.0:8480", &["Linkemu.lab", "2001:db8::1"]);
        for host in [
            "localhost:8480",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:8480",
            "LINKEMU.lab:8480",
            "192.0.2.7:8480",
            "[2001:db8::1]",
        ] {
            assert!(host_of(&guard, host).is_ok(), "{host}");
        }
        for host in [
            "evil.example:8480",
            "127.0.0.1.evil.example",
            "localhost.",
            "x.linkemu.lab",
            "192.0.2.8",
            "localhost@evil.example",
            "evil.example@localhost",
            "",
            "a b",
        ] {
            assert!(host_of(&guard, host).is_err(), "{host}");
        }
    }

    #[test]
    fn origin_has_to_be_ours() {
        let guard = guard("127.0.0.1:8480", &[]);
        let host: Authority = "127.0.0.1:8480".parse().unwrap();
        let check = |pairs: &[(&'static str, &'static str)], certified| {
            let pairs = pairs.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            guard.check_origin(&HeaderMap::from_iter(pairs), &host, certified).is_ok()
        };
        assert!(check(&[("origin", "http://127.0.0.1:8480")], false));
        assert!(check(&[("origin", "http://127.0.0.1:8480"), (FETCH_SITE, "same-origin")], false));
        for origin in [
            "http://evil.example",
            "http://127.0.0.1:9000",
            "http://127.0.0.1:8480.evil.example",
            "null",
            "ftp://127.0.0.1:8480",
            "",
        ] {
            let origin: &'static str = origin;
            assert!(!check(&[("origin", origin)], true), "{origin}");
        }
        let cross = [("origin", "http://127.0.0.1:8480"), (FETCH_SITE, "cross-site")];
        assert!(!check(&cross, true));
        assert!(!check(&[], false));
        // A program, not a browser.
        assert!(check(&[], true));
        assert!(!check(&[("cookie", "a=b")], true) && !check(&[(FETCH_SITE, "same-origin")], true));
    }

    #[test]
    fn path_that_leads_elsewhere_is_refused() {
        for path in ["/", "/linkemu.v1.Linkemu/GetLink", "/assets/index-B1c2.js", "/a.b..c"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
        for path in [
            "/../etc/passwd",
            "/assets/../../x",
            "/%2e%2e/x",
            "/..%2fx",
            "//x",
            "/a\\..\\b",
            "/./x",
            "*",
            "/a;b",
        ] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }
}
