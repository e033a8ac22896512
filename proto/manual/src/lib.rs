// SPDX-License-Identifier: Apache-2.0
//! Man pages and completion scripts, made from the command tree that a program parses with:
//! what `--help` says and what a manual says cannot differ.
//!
//! One page for the program and one for each subcommand (`linkctl-set-rate.1`); scripts for
//! bash, zsh and fish under the names that these shells look for.

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Name of the file, such as `linkctl-set-rate.1`.
    pub name: String,
    pub text: Vec<u8>,
}

/// All pages of a program; `section` is `1` for commands, `8` for administration programs.
///
/// # Errors
/// If a page cannot be rendered, which memory alone decides.
pub fn pages(command: &Command, section: &str) -> io::Result<Vec<Page>> {
    let mut pages = Vec::new();
    collect(&built(command), section, &mut pages)?;
    Ok(pages)
}

fn built(command: &Command) -> Command {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    command
}

fn collect(command: &Command, section: &str, pages: &mut Vec<Page>) -> io::Result<()> {
    for inner in visible(command) {
        collect(inner, section, pages)?;
    }
    let man = Man::new(command.clone()).section(section);
    let (name, mut text) = (man.get_filename(), Vec::new());
    man.render(&mut text)?;
    pages.push(Page { name, text });
    Ok(())
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|inner| !inner.is_hide_set())
}

/// Writes all pages of a program into a folder, which is made; gives their number.
///
/// # Errors
/// If a file cannot be written.
pub fn write_pages(command: &Command, section: &str, folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let pages = pages(command, section)?;
    for page in &pages {
        fs::write(folder.join(&page.name), &page.text)?;
    }
    Ok(pages.len())
}

/// Writes a program's completion scripts into a folder, which is made.
///
/// # Errors
/// If a file cannot be written.
pub fn write_completions(command: &Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let name = command.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), &name, folder)?;
    }
    Ok(())
}

/// Writes a daemon's pages and completion scripts into a folder, which is made.
///
/// # Errors
/// If a file cannot be written.
pub fn write_daemon(command: &Command, folder: &Path) -> io::Result<()> {
    write_pages(command, "8", folder)?;
    write_completions(command, folder)
}

/// Subcommands and options of a tree that its pages do not name, for tests: those that are not
/// hidden, and pages that are not there.
#[must_use]
pub fn unnamed(command: &Command, pages: &[Page]) -> Vec<String> {
    let mut missing = Vec::new();
    search(&built(command), pages, &mut missing);
    missing
}

fn search(command: &Command, pages: &[Page], missing: &mut Vec<String>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let page = pages.iter().find(|page| page.name.rsplit_once('.').map(|(n, _)| n) == Some(&name));
    let Some(page) = page else {
        missing.push(name);
        return;
    };
    // Hyphens are escaped in roff.
    let text = String::from_utf8_lossy(&page.text).replace('\\', "");
    let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
    let options =
        options.filter_map(|argument| argument.get_long().map(|long| format!("--{long}")));
    let inner = visible(command).map(|inner| format!("{name}-{}", inner.get_name()));
    missing.extend(
        options.chain(inner).filter(|word| !text.contains(word)).map(|w| format!("{name}: {w}")),
    );
    for inner in visible(command) {
        search(inner, pages, missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn tree() -> Command {
        let rate = Command::new("rate").about("Change it").arg(Arg::new("for").long("for-now"));
        let secret = Command::new("secret").hide(true);
        let global = Arg::new("socket").long("socket").global(true);
        let set = Command::new("set").subcommand(rate);
        Command::new("tool").version("1.2.3").subcommand(set).subcommand(secret).arg(global)
    }

    #[test]
    fn visible_command_has_a_page() {
        let pages = pages(&tree(), "1").unwrap();
        let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
        assert_eq!(names, ["tool-set-rate.1", "tool-set.1", "tool.1"]);
        assert!(unnamed(&tree(), &pages).is_empty());
        for page in &pages {
            assert!(String::from_utf8_lossy(&page.text).contains(".SH NAME"), "{}", page.name);
        }
    }

    #[test]
    fn unnamed_option_is_found() {
        let mut all = pages(&tree(), "8").unwrap();
        assert_eq!(all[0].name, "tool-set-rate.8");
        all[0].text = b"nothing".to_vec();
        let missing = unnamed(&tree(), &all);
        assert!(missing.contains(&"tool-set-rate: --for-now".to_owned()), "{missing:?}");
        assert!(missing.contains(&"tool-set-rate: --socket".to_owned()), "{missing:?}");
        all.remove(0);
        assert_eq!(unnamed(&tree(), &all), ["tool-set-rate"]);
        all.last_mut().unwrap().text.clear();
        assert!(unnamed(&tree(), &all).contains(&"tool: tool-set".to_owned()));
    }

    #[test]
    fn files_have_names_that_man_and_shells_expect() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("share/man");
        assert_eq!(write_pages(&tree(), "1", &deep).unwrap(), 3);
        assert!(deep.join("tool-set-rate.1").is_file());
        write_completions(&tree(), &deep).unwrap();
        for name in ["tool.bash", "_tool", "tool.fish"] {
            assert!(deep.join(name).is_file(), "{name}");
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(write_pages(&tree(), "1", &folder.path().join("file")).is_err());
    }
}
