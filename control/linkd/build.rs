// SPDX-License-Identifier: Apache-2.0
//! Rebuilds linkd when the web application was built (control/web/dist), which it embeds. linkd
//! builds without it, and without node.

use std::path::Path;

fn main() {
    let dist = Path::new("../web/dist");
    // cargo runs a build script every time if a path that it watches is missing.
    if std::fs::create_dir_all(dist).is_ok() {
        println!("cargo:rerun-if-changed={}", dist.display());
    }
    println!("cargo:rerun-if-changed=build.rs");
}
