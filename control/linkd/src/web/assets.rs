// SPDX-License-Identifier: Apache-2.0
//! The files of the web application (control/web/dist) and of the login page, embedded in linkd.
//!
//! A path is looked up among the embedded names, so that none leads to a file of the machine.

use super::site::{said, text};
use data_encoding::HEXLOWER;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use rust_embed::{EmbeddedFile, RustEmbed};
use tonic::body::Body;

/// Missing if it was not built.
#[derive(RustEmbed)]
#[folder = "../web/dist"]
#[allow_missing = true]
struct Application;

/// Files of linkd itself: the login page, and the page in place of an application that is missing.
#[derive(RustEmbed)]
#[folder = "src/web/static"]
struct Own;

const INDEX: &str = "index.html";
/// The application's files with a hash of their content in the name.
const HASHED: &str = "assets/";

/// The file at a path. Paths without a dot are views of the application.
pub(super) fn answer(path: &str, headers: &HeaderMap) -> Response<Body> {
    let name = path.trim_start_matches('/');
    let name = match name {
        "login" => "login.html",
        name if !name.contains('.') && !name.starts_with(HASHED) => INDEX,
        name => name,
    };
    let own = || Own::get(name).or_else(|| (name == INDEX).then(|| Own::get("missing.html"))?);
    match Application::get(name).or_else(own) {
        Some(file) => serve(name, &file, headers),
        None => text(StatusCode::NOT_FOUND, "there is no such file\n"),
    }
}

fn serve(name: &str, file: &EmbeddedFile, headers: &HeaderMap) -> Response<Body> {
    let tag = tag(&file.metadata.sha256_hash());
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let is_known = known
        .flat_map(|tags| tags.split(','))
        .any(|known| known.trim().trim_start_matches("W/") == tag || known.trim() == "*");
    let mut response = if is_known {
        said(StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        let body = Full::new(Bytes::from(file.data.clone().into_owned()));
        said(StatusCode::OK, Body::new(body))
    };
    let kept = match name.starts_with(HASHED) {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let kind = match file.metadata.mimetype() {
        kind if kind.starts_with("text/") => format!("{kind}; charset=utf-8"),
        kind => kind.to_owned(),
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    for (key, value) in [(CONTENT_TYPE, kind), (ETAG, tag)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(key, value);
        }
    }
    response
}

fn tag(hash: &[u8; 32]) -> String {
    let hex = HEXLOWER.encode(&hash[..16]);
    format!("\"{hex}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_served_with_its_type_and_not_again_to_who_has_it() {
        let first = answer("/login", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        let known = HeaderMap::from_iter([(IF_NONE_MATCH, first.headers()[ETAG].clone())]);
        assert_eq!(answer("/login", &known).status(), StatusCode::NOT_MODIFIED);
        let script = answer("/login.js", &HeaderMap::new());
        assert_eq!(script.headers()[CONTENT_TYPE], "text/javascript; charset=utf-8");
        for view in ["/", "/links/lab1"] {
            let page = answer(view, &HeaderMap::new());
            assert_eq!(page.status(), StatusCode::OK, "{view}");
            assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        }
        for path in ["/none.js", "/assets/none", "/../Cargo.toml", "/src/web/static/login.js"] {
            assert_eq!(answer(path, &HeaderMap::new()).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
