// SPDX-License-Identifier: Apache-2.0
//! Cleanup of EAL: refused while an object holds it, and without leftovers.

use std::fs;
use std::path::PathBuf;

use dpdk::{Eal, EalOptions, Error, Memory, Mempool};

#[test]
fn cleanup_waits_for_the_last_holder_and_leaves_no_files() {
    let runtime = std::env::var("XDG_RUNTIME_DIR").unwrap_or_else(|_| "/tmp".to_owned());
    let roots = [PathBuf::from("/var/run/dpdk"), PathBuf::from(runtime).join("dpdk")];
    let before = roots.each_ref().map(|root| root.exists());
    let eal = Eal::init(&EalOptions::new(Memory::NoHuge { megabytes: 64 })).unwrap();
    let pool = Mempool::new(&eal, "holder", 63, 2048).unwrap();
    let other = eal.share();
    assert!(matches!(eal.cleanup(), Err(Error::InUse { holders: 2 })));
    drop(pool);
    other.cleanup().unwrap();

    let prefix = format!("linkemu-{}", std::process::id());
    for (root, was_there) in roots.into_iter().zip(before) {
        let left: Vec<_> = fs::read_dir(&root)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        // One of another process has something in it.
        let is_empty = fs::read_dir(&root).is_ok_and(|mut entries| entries.next().is_none());
        assert!(was_there || !is_empty, "{} is left", root.display());
    }
    let again = Eal::init(&EalOptions::new(Memory::NoHuge { megabytes: 64 }));
    assert!(matches!(again, Err(Error::AlreadyInitialised)));
}
