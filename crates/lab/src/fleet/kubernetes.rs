//! A study as objects of Kubernetes: an indexed Job, one block each, and the claim that its results go to. On paper: they
//! are written, and applied by whoever has a cluster.
//!
//! What a pod is told is no more than a host without any scheduler would be: `plimsoll run STUDY --block N`. Blocks fit
//! together because parts of a study have their seed from what it measures, or from its file. The objects are JSON, which
//! `kubectl` reads as it reads YAML.

use serde_json::{Value, json};

use super::Wishes;
use crate::error::Error;
use crate::study_run::Request;

/// Where a pod has the study, its results and its builds.
const STUDY_DIR: &str = "/study";
const RESULTS_DIR: &str = "/results";

/// The objects, as one list.
///
/// # Errors
/// The study's workloads are files beside it: a config map has the study file alone.
pub fn manifests(request: &Request, wishes: &Wishes, image: &str) -> Result<String, Error> {
    let body = request.study.body(request.quick);
    let files = crate::plan::workload_files(&body);
    if let Some(file) = files.keys().next() {
        return Err(Error::Usage(format!(
            "--on kubernetes: {file} is a file beside the study, which the config map does not hold: put both into the image, \
             and the objects by hand (docs/fleet.md)"
        )));
    }
    if wishes.constraint.as_deref().is_some_and(|text| label(text).is_none()) {
        return Err(Error::Usage("--constraint for kubernetes is the label of a node: key=value".into()));
    }
    let name = format!("plimsoll-{}", object_name(&request.study.name));
    let objects = json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": [config_map(&name, request), claim(&name), job(&name, request, body.load.blocks, wishes, image)],
    });
    serde_json::to_string_pretty(&objects)
        .map(|text| text + "\n")
        .map_err(|error| Error::Run(error.to_string()))
}

/// A DNS label: what objects may be called.
fn object_name(name: &str) -> String {
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let plain: String = plain.trim_matches('-').chars().take(40).collect();
    if plain.is_empty() { "study".to_owned() } else { plain.trim_end_matches('-').to_owned() }
}

fn label(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
}

fn config_map(name: &str, request: &Request) -> Value {
    let file = format!("{}.toml", request.study.name);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {file: request.study.text},
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("{name}-results")},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    })
}

fn job(name: &str, request: &Request, blocks: u32, wishes: &Wishes, image: &str) -> Value {
    let quick = if request.quick { " --quick" } else { "" };
    let study = &request.study.name;
    let script = format!(
        "block=$((JOB_COMPLETION_INDEX + 1)); exec plimsoll run '{STUDY_DIR}/{study}.toml' --block $block \
         --results {RESULTS_DIR}/block-$block{quick}"
    );
    let labels = json!({"app": name});
    let mut selector = json!({});
    if let Some((key, value)) = wishes.constraint.as_deref().and_then(label) {
        selector[key] = value.into();
    }
    let mut spec = json!({
        "completions": blocks,
        "parallelism": wishes.nodes.unwrap_or(blocks).min(blocks),
        "completionMode": "Indexed",
        "backoffLimit": 3 * blocks,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": selector,
                "affinity": alone(name),
                "containers": [{
                    "name": "plimsoll",
                    "image": image,
                    "command": ["/bin/sh", "-c", script],
                    "env": [{"name": "PLIMSOLL_HOME", "value": "/var/lib/plimsoll"}],
                    // As large as a node is told with the cluster's own tools; without requests the pod is the first to go.
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                    "volumeMounts": [
                        {"name": "study", "mountPath": STUDY_DIR, "readOnly": true},
                        {"name": "results", "mountPath": RESULTS_DIR},
                        {"name": "home", "mountPath": "/var/lib/plimsoll"},
                    ],
                }],
                "volumes": [
                    {"name": "study", "configMap": {"name": name}},
                    {"name": "results", "persistentVolumeClaim": {"claimName": format!("{name}-results")}},
                    // Data directories of servers and fetched builds: on the node's own disk, which is what is measured.
                    {"name": "home", "emptyDir": {}},
                ],
            },
        },
    });
    if let Some(limit) = wishes.time_limit {
        spec["template"]["spec"]["activeDeadlineSeconds"] = limit.as_secs().max(1).into();
    }
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// No two blocks on one node at the same time. Pods of others are kept away by a taint of the nodes (docs/fleet.md).
fn alone(name: &str) -> Value {
    json!({
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"app": name}},
                "topologyKey": "kubernetes.io/hostname",
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, more: &str) -> Request {
        let text = format!(
            "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n[load]\nblocks = \
             6\n{more}"
        );
        let study = crate::study::parse(std::path::Path::new(name), &text).unwrap();
        Request {
            study,
            results: "r".into(),
            quick: false,
            only: vec![],
            part: None,
            client_hosts: crate::clients::Hosts::This,
            new: false,
            command: String::new(),
            version: "1".to_owned(),
        }
    }

    fn objects(request: &Request, wishes: &Wishes) -> Value {
        serde_json::from_str(&manifests(request, wishes, "lab/plimsoll:1").unwrap()).unwrap()
    }

    #[test]
    fn a_block_is_a_completion_alone_on_its_node() {
        let wishes = Wishes {
            nodes: Some(4),
            constraint: Some("disk=nvme".to_owned()),
            time_limit: Some(std::time::Duration::from_secs(7200)),
            ..Wishes::default()
        };
        let list = objects(&request("My Study_1.toml", ""), &wishes);
        let job = &list["items"][2];
        let spec = &job["spec"];
        assert_eq!(job["metadata"]["name"], "plimsoll-my-study-1");
        assert_eq!((&spec["completions"], &spec["parallelism"]), (&6.into(), &4.into()));
        assert_eq!(spec["completionMode"], "Indexed");
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["nodeSelector"]["disk"], "nvme");
        assert_eq!(pod["activeDeadlineSeconds"], 7200);
        let script = pod["containers"][0]["command"][2].as_str().unwrap();
        assert!(
            script.contains("'/study/My Study_1.toml' --block $block --results /results/block-$block"),
            "{script}"
        );
        // What is mounted is there.
        let volumes: Vec<&Value> =
            pod["volumes"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        for mount in pod["containers"][0]["volumeMounts"].as_array().unwrap() {
            assert!(volumes.contains(&&mount["name"]), "{mount}");
        }
        let claimed = &pod["volumes"][1]["persistentVolumeClaim"]["claimName"];
        assert_eq!(*claimed, list["items"][1]["metadata"]["name"]);
        assert_eq!(pod["volumes"][0]["configMap"]["name"], list["items"][0]["metadata"]["name"]);
        assert!(list["items"][0]["data"]["My Study_1.toml"].as_str().unwrap().contains("blocks = 6"));
    }

    #[test]
    fn names_are_what_kubernetes_takes() {
        for (name, wanted) in [("quickstart", "quickstart"), ("__", "study"), ("a.b-", "a-b"), ("Ü1", "1")] {
            assert_eq!(object_name(name), wanted);
        }
        assert!(object_name(&"x".repeat(300)).len() <= 40);
        let bad = Wishes { constraint: Some("zen4".to_owned()), ..Wishes::default() };
        assert!(manifests(&request("s.toml", ""), &bad, "i").unwrap_err().to_string().contains("key=value"));
    }
}
