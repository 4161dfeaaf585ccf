//! The commands that a metadata proposal carries.

use rivven_cluster::metadata::MetadataCommand::{self, *};
use rivven_cluster::node::{NodeCapabilities, NodeInfo};
use rivven_cluster::partition::{PartitionId, TopicConfig};
use rivven_core::consumer_group::{
    AssignmentStrategy, ConsumerGroup, GroupMember, GroupState, PartitionAssignment,
    RebalanceProtocol,
};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

pub fn commands(write: impl Fn(&str, &str, &MetadataCommand)) {
    let write = |name: &str, command: MetadataCommand| write("command", name, &command);
    let nodes = || vec![texts(&["n1", "n2"])];
    let orders = || PartitionId::new("orders", 3);
    write(
        "create topic",
        CreateTopic {
            config: TopicConfig::new("orders", 6, 3),
            partition_assignments: nodes(),
        },
    );
    write(
        "create topic of nothing",
        CreateTopic {
            config: smallest_topic(),
            partition_assignments: vec![],
        },
    );
    write(
        "create largest topic",
        CreateTopic {
            config: largest_topic(),
            partition_assignments: vec![vec![], texts(&["", "1"]), vec![]],
        },
    );
    write(
        "delete topic",
        DeleteTopic {
            name: "orders".into(),
        },
    );
    write(
        "update topic config",
        UpdateTopicConfig {
            name: "orders".into(),
            config: settings(1),
        },
    );
    write(
        "update no topic config",
        UpdateTopicConfig {
            name: String::new(),
            config: settings(0),
        },
    );
    write(
        "update much topic config",
        UpdateTopicConfig {
            name: "orders".into(),
            config: settings(200),
        },
    );
    write(
        "add partitions",
        AddPartitions {
            topic: "orders".into(),
            new_assignments: nodes(),
        },
    );
    write(
        "add many partitions",
        AddPartitions {
            topic: "orders".into(),
            new_assignments: vec![texts(&["1", "2", "3"]); 150],
        },
    );
    write(
        "update leader",
        UpdatePartitionLeader {
            partition: orders(),
            leader: "2".into(),
            epoch: 7,
        },
    );
    write(
        "update leader to the last epoch",
        UpdatePartitionLeader {
            partition: PartitionId::new("t", u32::MAX),
            leader: String::new(),
            epoch: u64::MAX,
        },
    );
    write(
        "update isr",
        UpdatePartitionIsr {
            partition: orders(),
            isr: texts(&["1", "2"]),
        },
    );
    write(
        "update isr to nobody",
        UpdatePartitionIsr {
            partition: orders(),
            isr: vec![],
        },
    );
    write(
        "reassign",
        ReassignPartition {
            partition: orders(),
            replicas: texts(&["3", "2", "1"]),
        },
    );
    write(
        "register node",
        RegisterNode {
            info: node("n1", "127.0.0.1:9092", "127.0.0.1:9093"),
        },
    );
    write("register node with all", RegisterNode { info: full_node() });
    write(
        "deregister node",
        DeregisterNode {
            node_id: "1".into(),
        },
    );
    write(
        "update node",
        UpdateNode {
            node_id: "1".into(),
            info: full_node(),
        },
    );
    write(
        "update cluster config",
        UpdateClusterConfig {
            config: settings(3),
        },
    );
    write("update empty group", UpdateConsumerGroup { group: group() });
    write(
        "update group",
        UpdateConsumerGroup {
            group: full_group(),
        },
    );
    for state in [
        GroupState::Empty,
        GroupState::PreparingRebalance,
        GroupState::CompletingRebalance,
        GroupState::Stable,
        GroupState::Dead,
    ] {
        let name = format!("update group that is {state:?}");
        write(
            &name,
            UpdateConsumerGroup {
                group: ConsumerGroup { state, ..group() },
            },
        );
    }
    for assignment_strategy in [AssignmentStrategy::RoundRobin, AssignmentStrategy::Sticky] {
        let name = format!("update group that assigns by {assignment_strategy:?}");
        write(
            &name,
            UpdateConsumerGroup {
                group: ConsumerGroup {
                    assignment_strategy,
                    ..group()
                },
            },
        );
    }
    write(
        "delete group",
        DeleteConsumerGroup {
            group_id: "g".into(),
        },
    );
    write("noop", Noop);
}

fn smallest_topic() -> TopicConfig {
    TopicConfig {
        name: String::new(),
        partitions: 0,
        replication_factor: 0,
        retention_ms: 0,
        segment_bytes: 0,
        min_isr: 0,
        config: HashMap::new(),
    }
}

fn largest_topic() -> TopicConfig {
    TopicConfig {
        name: "é漢😀".into(),
        partitions: u32::MAX,
        replication_factor: u16::MAX,
        retention_ms: u64::MAX,
        segment_bytes: u64::MAX,
        min_isr: u16::MAX,
        config: settings(2),
    }
}

fn node(id: &str, client: &str, cluster: &str) -> NodeInfo {
    NodeInfo::new(id, client.parse().unwrap(), cluster.parse().unwrap())
}

fn full_node() -> NodeInfo {
    node("2147483647", "[::1]:65535", "[2001:db8::ff00:42:8329]:0")
        .with_name("a name")
        .with_rack("")
        .with_capabilities(NodeCapabilities::observer())
        .with_tag("zone", "a")
        .with_tag("", "")
}

fn group() -> ConsumerGroup {
    ConsumerGroup::new(
        "g".into(),
        Duration::from_secs(10),
        Duration::from_millis(u64::MAX),
    )
}

fn full_group() -> ConsumerGroup {
    let assigned = |count| {
        (0..count)
            .map(|partition| PartitionAssignment {
                topic: "orders".into(),
                partition,
            })
            .collect::<Vec<_>>()
    };
    let member = |id: &str, heartbeat_ms| GroupMember {
        member_id: id.into(),
        group_instance_id: (id == "m1").then(|| "i1".into()),
        client_id: "client".into(),
        subscriptions: texts(&["orders", ""]),
        assignment: assigned(3),
        pending_revocation: assigned(1),
        last_heartbeat: SystemTime::UNIX_EPOCH + Duration::from_millis(heartbeat_ms),
        metadata: vec![0, 127, 128, 255],
        is_static: id == "m1",
        supported_protocols: vec![RebalanceProtocol::Eager, RebalanceProtocol::Cooperative],
    };
    let offsets = HashMap::from([(0, 0), (1, -1), (u32::MAX, i64::MAX), (7, i64::MIN)]);
    ConsumerGroup {
        generation_id: u32::MAX,
        leader_id: Some("m1".into()),
        rebalance_protocol: RebalanceProtocol::Cooperative,
        members: HashMap::from([
            ("m1".into(), member("m1", 1_700_000_000_000)),
            ("m2".into(), member("m2", u64::MAX)),
            ("m3".into(), member("m3", 0)),
        ]),
        static_members: HashMap::from([("i1".into(), "m1".into())]),
        pending_static_members: HashMap::from([("i2".into(), assigned(2)), ("i3".into(), vec![])]),
        awaiting_revocation: HashMap::from([("m2".into(), assigned(130))]),
        offsets: HashMap::from([("orders".into(), offsets), ("none".into(), HashMap::new())]),
        ..group()
    }
}

fn settings(count: usize) -> HashMap<String, String> {
    (0..count)
        .map(|n| (format!("key.{n}"), "v".repeat(n)))
        .collect()
}

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|each| each.to_string()).collect()
}
