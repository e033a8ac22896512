// SPDX-License-Identifier: Apache-2.0
//! The program of a Tofino, as P4Runtime servers want it, from the directory that p4c's back end
//! wrote.
//!
//! P4Runtime leaves the format of `p4_device_config` to the server. Stratum takes a message of its
//! own (stratum/hal/lib/barefoot/bf.proto). `bf_switchd` and PI take name, binary and context, each
//! after its length.

use prost::Message;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What the server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Stratum,
    BfSwitchd,
}

/// Why the directory has no program.
#[derive(Debug, thiserror::Error)]
pub enum TofinoError {
    #[error("{}: {what}; give the directory that p4c -o wrote, whole", path.display())]
    Conf { path: PathBuf, what: String },
    #[error(
        "{} has {pipelines} pipelines, and bf_switchd's format holds one: give format = \
         \"stratum\", or a program for all pipes", path.display()
    )]
    Pipelines { path: PathBuf, pipelines: usize },
}

/// `bf-p4c`'s description of its output.
#[derive(Deserialize)]
struct Conf {
    p4_devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    p4_programs: Vec<Program>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Program {
    program_name: String,
    bfrt_config: PathBuf,
    #[serde(rename = "p4_pipelines")]
    pipelines: Vec<Pipeline>,
}

#[derive(Deserialize)]
struct Pipeline {
    #[serde(rename = "p4_pipeline_name")]
    name: String,
    context: PathBuf,
    config: PathBuf,
    /// Pipes that run it.
    #[serde(default, rename = "pipe_scope")]
    scope: Vec<u32>,
}

/// Stratum's `BfPipelineConfig`.
#[derive(Clone, PartialEq, Message)]
struct BfPipelineConfig {
    #[prost(string, tag = "1")]
    p4_name: String,
    #[prost(bytes = "vec", tag = "2")]
    bfruntime_info: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(string, tag = "1")]
    profile_name: String,
    #[prost(bytes = "vec", tag = "2")]
    context: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    binary: Vec<u8>,
    #[prost(uint32, repeated, tag = "4")]
    pipe_scope: Vec<u32>,
}

/// Device configuration from the compiler's output. `conf` is its `.conf` file at `path`; `read`
/// reads a file by its path in the directory.
///
/// The paths in `conf` are those of an installation: only their last parts count, below the
/// directory of their pipeline.
pub fn device<E: From<TofinoError>>(
    path: &Path,
    conf: &[u8],
    format: Format,
    read: impl Fn(&Path) -> Result<Vec<u8>, E>,
) -> Result<Vec<u8>, E> {
    let wrong = |what: &str| TofinoError::Conf { path: path.to_owned(), what: what.to_owned() };
    let conf: Conf = serde_json::from_slice(conf).map_err(|e| wrong(&e.to_string()))?;
    let [Device { p4_programs }] = &*conf.p4_devices else {
        return Err(wrong("it is not of one device").into());
    };
    let [program] = &**p4_programs else {
        return Err(wrong("it is not of one program").into());
    };
    let last = |path: &Path| path.file_name().map(PathBuf::from).unwrap_or_default();
    let mut profiles = Vec::new();
    for pipeline in &program.pipelines {
        let of = |path: &Path| read(&Path::new(&last(Path::new(&pipeline.name))).join(last(path)));
        profiles.push(Profile {
            profile_name: pipeline.name.clone(),
            context: of(&pipeline.context)?,
            binary: of(&pipeline.config)?,
            pipe_scope: pipeline.scope.clone(),
        });
    }
    match format {
        Format::Stratum => {
            let bfruntime_info = read(&last(&program.bfrt_config))?;
            let p4_name = program.program_name.clone();
            Ok(BfPipelineConfig { p4_name, bfruntime_info, profiles }.encode_to_vec())
        }
        Format::BfSwitchd => {
            let [profile] = &*profiles else {
                let (path, pipelines) = (path.to_owned(), profiles.len());
                return Err(TofinoError::Pipelines { path, pipelines }.into());
            };
            let name = program.program_name.as_bytes();
            let mut packed = Vec::new();
            for part in [name, &profile.binary, &profile.context] {
                let length = u32::try_from(part.len());
                let length = length.map_err(|_| wrong("a part has more than 4 GiB"))?;
                packed.extend(length.to_le_bytes());
                packed.extend(part);
            }
            Ok(packed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Program, ProgramError};
    use crate::target::Target;
    use std::fs;

    const CONF: &str = r#"{
        "chip_list": [{ "chip_family": "tofino", "instance": 0 }],
        "p4_devices": [{
            "device-id": 0,
            "p4_programs": [{
                "program-name": "linkemu",
                "bfrt-config": "share/tofinopd/linkemu/bf-rt.json",
                "model_json_path": "x/aug_model.json",
                "p4_pipelines": [{
                    "p4_pipeline_name": "pipe",
                    "context": "share/tofinopd/linkemu/pipe/context.json",
                    "config": "share/tofinopd/linkemu/pipe/tofino.bin",
                    "pipe_scope": [0, 1],
                    "path": "share/tofinopd/linkemu"
                }]
            }],
            "agent0": "lib/libpltfm_mgr.so"
        }]
    }"#;

    /// The compiler's output: a directory that is removed at the end.
    fn output(conf: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        fs::create_dir(directory.path().join("pipe")).unwrap();
        write("linkemu.conf", conf);
        write("linkemu.p4info.bin", "p4info");
        write("bf-rt.json", "{bfrt}");
        write("pipe/context.json", "{context}");
        write("pipe/tofino.bin", "binary");
        directory
    }

    fn read(
        directory: &tempfile::TempDir,
        format: Option<Format>,
    ) -> Result<Vec<u8>, ProgramError> {
        let program = Program::read(directory.path(), Target::Tofino, format)?;
        assert_eq!(*program.p4info, *b"p4info");
        Ok(program.device.into_owned())
    }

    #[test]
    fn stratum_takes_a_message_with_all_files() {
        let directory = output(CONF);
        // Keys and lengths by hand, as the wire format has them.
        let mut expected = b"\x0a\x07linkemu\x12\x06{bfrt}\x1a\x1d".to_vec();
        expected.extend(b"\x0a\x04pipe\x12\x09{context}\x1a\x06binary\x22\x02\x00\x01");
        assert_eq!(read(&directory, Some(Format::Stratum)).unwrap(), expected);
        assert_eq!(read(&directory, None).unwrap(), expected);
    }

    #[test]
    fn bf_switchd_takes_parts_behind_their_lengths() {
        let expected = b"\x07\0\0\0linkemu\x06\0\0\0binary\x09\0\0\0{context}";
        assert_eq!(read(&output(CONF), Some(Format::BfSwitchd)).unwrap(), expected);
    }

    #[test]
    fn ready_file_is_used_as_it_is_unless_a_format_is_given() {
        let directory = output(CONF);
        fs::write(directory.path().join("linkemu.bin"), "ready").unwrap();
        assert_eq!(read(&directory, None).unwrap(), b"ready");
        assert_ne!(read(&directory, Some(Format::Stratum)).unwrap(), b"ready");
    }

    #[test]
    fn incomplete_output_is_refused_with_the_file() {
        let of = |conf: &str| read(&output(conf), None).unwrap_err().to_string();
        assert!(of("{").contains("linkemu.conf: EOF"), "{}", of("{"));
        assert!(of("{\"p4_devices\": []}").contains("not of one device"));
        let nothing = "{\"p4_devices\": [{\"p4_programs\": []}]}";
        assert!(of(nothing).contains("not of one program; give the directory that p4c -o wrote"));
        let directory = output(CONF);
        fs::remove_file(directory.path().join("pipe/context.json")).unwrap();
        let error = read(&directory, Some(Format::BfSwitchd)).unwrap_err().to_string();
        assert!(error.contains("pipe/context.json: No such file"), "{error}");
        // A path that leads out of the directory.
        let out = CONF.replace("linkemu/pipe/tofino.bin", "../../../../etc/passwd");
        assert!(of(&out).contains("pipe/passwd: No such file"), "{}", of(&out));
        let out = CONF.replace("\"pipe\"", "\"..\"");
        assert!(of(&out).contains("context.json: No such file"), "{}", of(&out));
    }

    #[test]
    fn bf_switchd_takes_one_pipeline() {
        let pipe = CONF.find("{\n                    \"p4_pipeline_name").unwrap();
        let end = CONF[pipe..].find('}').unwrap() + pipe + 1;
        let two = format!("{}{},{}", &CONF[..pipe], &CONF[pipe..end], &CONF[pipe..]);
        let error = read(&output(&two), Some(Format::BfSwitchd)).unwrap_err().to_string();
        assert!(error.contains("2 pipelines") && error.contains("\"stratum\""), "{error}");
        assert!(read(&output(&two), Some(Format::Stratum)).is_ok());
    }
}
