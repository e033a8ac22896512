// SPDX-License-Identifier: Apache-2.0
//! Where the kernel tells about the machine: the roots of its two trees, which tests put
//! elsewhere, and how their small files are read.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Machine {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Machine {
    pub fn this() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// The text of a file of `/sys`, trimmed; `None` if it is not there.
    pub fn sys(&self, path: impl AsRef<Path>) -> Option<String> {
        read(&self.sys.join(path))
    }

    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.sys.join(path).exists()
    }

    /// The names in a folder of `/sys`, sorted; none if it is not there.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.sys.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The name of the target of a link in `/sys`, such as a device's driver; `None` if it does
    /// not exist.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.sys.join(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The processes: their numbers, names and places in `/proc`.
    pub fn processes(&self) -> impl Iterator<Item = (u32, String, PathBuf)> {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // One without a name has just ended.
            let name = read(&entry.path().join("comm")).unwrap_or_default();
            Some((pid, name, entry.path()))
        })
    }

    /// The process that serves a socket, by the lock beside it: a folder of `/proc`. `None` if it is not
    /// seen.
    pub fn serving(&self, socket: &Path) -> Option<String> {
        let mut lock = socket.as_os_str().to_owned();
        lock.push(".lock");
        let pid = read(&PathBuf::from(lock))?.parse::<u32>().ok()?.to_string();
        self.proc.join(&pid).is_dir().then_some(pid)
    }

    /// The cores of a list of `/sys/devices/system/cpu`, such as `0-3,8`.
    pub fn cores(&self, list: &str) -> Vec<usize> {
        cores(&self.sys(Path::new("devices/system/cpu").join(list)).unwrap_or_default())
    }
}

pub fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

/// The kernel's list of cores; invalid entries are omitted.
pub fn cores(text: &str) -> Vec<usize> {
    // No machine has more cores: limits the work on a malformed file.
    const MOST: usize = 8192;
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<usize>(), last.trim().parse()) {
            all.extend(first..=usize::min(last, MOST));
        }
    }
    all
}

/// Cores as a list for the kernel's command line.
pub fn list(cores: &[usize]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The command that adds words to the kernel's command line, on Debian.
pub fn at_boot(words: &str) -> String {
    format!(
        "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{words} /' /etc/default/grub && update-grub   \
         # in force after a restart"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
pub mod tests {
    use super::*;
    use tempfile::TempDir;

    pub struct Tree(TempDir);

    impl Tree {
        pub fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                tree.write(path, text);
            }
            tree
        }

        pub fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub fn link(&self, path: &str, target: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }

        pub fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        pub fn machine(&self) -> Machine {
            Machine { proc: self.at("proc"), sys: self.at("sys") }
        }
    }

    #[test]
    fn the_process_is_named_by_the_lock() {
        let tree = Tree::new(&[("dp.sock.lock", "77\n"), ("proc/77/limits", "")]);
        let process = |name: &str| tree.machine().serving(&tree.at(name));
        assert_eq!(process("dp.sock").as_deref(), Some("77"));
        tree.write("gone.sock.lock", "78");
        tree.write("odd.sock.lock", "../77");
        assert_eq!((process("gone.sock"), process("odd.sock"), process("x")), (None, None, None));
    }

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(cores("2"), [2]);
        for odd in ["", "(null)", "x-y", "3-1", "-"] {
            assert!(cores(odd).is_empty(), "{odd}");
        }
        assert!(cores("0-99999999999").len() < 10_000);
        assert_eq!(list(&[2, 3]), "2,3");
    }

    #[test]
    fn missing_files_give_nothing() {
        let machine = Tree::new(&[]).machine();
        assert_eq!(machine.sys("nothing"), None);
        assert!(machine.names("nothing").is_empty() && !machine.has("nothing"));
    }
}
