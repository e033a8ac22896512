// SPDX-License-Identifier: Apache-2.0
//! The simple commands of a shell script, and the files that it writes with here-documents. It knows
//! as much of the shell's grammar as the pages use.

use std::iter::Peekable;
use std::str::Chars;

/// Words before a command that it is a part of: `*` is any one word.
const BEFORE: [&[&str]; 10] = [
    &["ip", "netns", "exec", "*"],
    &["runc", "exec", "*"],
    &["docker", "exec", "*"],
    &["ssh", "-L", "*", "*"],
    &["ssh", "*"],
    &["sudo"],
    &["until"],
    &["while"],
    &["do"],
    &["!"],
];
/// Variables in files of environment variables, and the programs that get their words.
const OPTIONS: [(&str, &str); 2] =
    [("LINKD_OPTIONS", "linkd"), ("P4SWITCH_OPTIONS", "linkd-p4switch")];

#[derive(Clone, Debug, Default)]
pub struct Script {
    commands: Vec<Vec<String>>,
    /// Path and text.
    pub files: Vec<(String, String)>,
}

impl Script {
    pub fn of(text: &str) -> Self {
        let (text, files) = without_here_documents(text);
        let mut commands = simple_commands(&text.replace("\\\n", " "));
        for (_, text) in files.iter().filter(|(path, _)| path.ends_with(".env")) {
            for (variable, program) in OPTIONS {
                let values =
                    text.lines().filter_map(|l| l.strip_prefix(variable)?.strip_prefix('='));
                for value in values {
                    let words = shlex::split(value.trim_matches('"')).unwrap_or_default();
                    commands.push([vec![program.to_owned()], words].concat());
                }
            }
        }
        Self { commands, files }
    }

    /// The commands of the steps of a CI job, each on one line.
    pub fn of_yaml(text: &str) -> Self {
        let steps = text.lines().filter_map(|line| line.trim().strip_prefix("- run: "));
        Self { commands: steps.flat_map(simple_commands).collect(), files: Vec::new() }
    }

    /// The commands of a program, also those that are arguments of another one after `--`.
    pub fn commands(&self, program: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for command in &self.commands {
            let mut parts = vec![command.as_slice()];
            let inner = command.iter().enumerate().filter(|(_, word)| *word == "--");
            parts.extend(inner.map(|(n, _)| &command[n + 1..]));
            let parts = parts.into_iter().map(itself);
            let its = parts.filter(|words| words.first().is_some_and(|name| name == program));
            found.extend(its.map(<[String]>::to_vec));
        }
        found
    }
}

/// A command without what goes before it: variables, and programs that execute it.
fn itself(mut words: &[String]) -> &[String] {
    while let Some(first) = words.first() {
        let is_before = |before: &&&[&str]| {
            words.len() > before.len()
                && before.iter().zip(words).all(|(known, word)| *known == "*" || known == word)
        };
        let name = first.split_once('=').map(|(name, _)| name);
        let is_variable = name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        });
        let skipped = match BEFORE.iter().find(is_before) {
            _ if is_variable => 1,
            Some(before) => before.len(),
            None => break,
        };
        words = &words[skipped..];
    }
    words
}

/// Separates `cat >PATH <<END` and its text.
fn without_here_documents(text: &str) -> (String, Vec<(String, String)>) {
    let (mut rest, mut files) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        rest.push_str(line);
        rest.push('\n');
        let Some((before, end)) = line.split_once("<<") else { continue };
        let end = end.trim().trim_matches('\'');
        let path = before.split_once('>').map_or("", |(_, path)| path).trim();
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        files.push((path.to_owned(), body.join("\n") + "\n"));
    }
    (rest, files)
}

/// The words of each simple command, without redirections, comments and operators.
fn simple_commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    // The next word is the target of a redirection.
    let mut redirected = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => word.get_or_insert_default().push_str(&quoted(c, &mut chars)),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            // A duplicate of a descriptor, such as 2>&1.
            '&' if redirected && word.is_none() => {}
            '>' | '<' => {
                // The number of a descriptor belongs to the redirection.
                word.take_if(|word| word.chars().all(|c| c.is_ascii_digit()));
                words.extend(word.take());
                redirected = true;
                chars.next_if_eq(&'>');
            }
            ' ' | '\t' | '\n' | ';' | '|' | '&' | '(' | ')' => {
                match word.take() {
                    Some(_) if redirected => redirected = false,
                    done => words.extend(done),
                }
                if !matches!(c, ' ' | '\t') {
                    commands.push(std::mem::take(&mut words));
                    redirected = false;
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    if !redirected {
        words.extend(word);
    }
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// The rest of a quoted part of a word.
fn quoted(quote: char, chars: &mut Peekable<Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            _ if c == quote => break,
            '\\' if quote == '"' => match chars.next() {
                Some(escaped @ ('"' | '\\' | '$')) => text.push(escaped),
                Some(other) => text.extend([c, other]),
                None => {}
            },
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_where_the_pages_have_them() {
        for (text, expected) in [
            ("linkctl show # a b\n", &["show"][..]),
            (
                "linkctl set \\\n  rate 5Mbit/s > f; linkctl show 2>&1 | grep x",
                &["set rate 5Mbit/s", "show"],
            ),
            ("A=b ip netns exec h linkctl show & ssh -L 1:h:1 box linkctl web", &["show", "web"]),
            ("T=$(linkctl -o json web | jq -r .url)", &["-o json web"]),
            ("until runc exec box linkctl show 2> log | grep -q x; do sleep 1; done", &["show"]),
            ("linkctl run -- linkctl show", &["run -- linkctl show", "show"]),
            ("systemctl restart linkctl && echo linkctl", &[]),
        ] {
            let found = Script::of(text).commands("linkctl");
            let found: Vec<String> = found.iter().map(|words| words[1..].join(" ")).collect();
            assert_eq!(found, expected, "{text}");
        }
        let quoted = Script::of("linkctl link assign a --match 'dscp = \"4 6\"' \"x\\\"y z\"");
        assert_eq!(quoted.commands("linkctl")[0][4..], ["--match", "dscp = \"4 6\"", "x\"y z"]);
    }

    #[test]
    fn here_documents_are_files_and_options() {
        let text = "cat >/etc/linkd.env <<'END'\nLINKD_OPTIONS=\"--member --web off\"\nEND\nlinkctl show\n";
        let script = Script::of(text);
        assert_eq!(script.commands("linkd"), [["linkd", "--member", "--web", "off"]]);
        assert_eq!(script.commands("linkctl"), [["linkctl", "show"]]);
        assert_eq!(script.files[0].0, "/etc/linkd.env");
    }
}
