package groups

import "slices"

// scenarios returns all scenarios. Nodes whose names begin with "any-" are equal.
func scenarios() []scenario {
	return slices.Concat(gangs(), late(), others(), preemptions(), units(), claims())
}

// gangs are about gangs as a whole.
func gangs() []scenario {
	abc := pods("a b c", in("g"))
	return []scenario{
		{"gang that fits", []step{nodes("2", "any-a", "any-b"), abc, group("g", 3)}},
		{"gang whose group comes first", []step{nodes("2", "any-a", "any-b"), group("g", 2), pods("a", in("g")), pods("b", in("g"))}},
		{"gang without nodes", []step{abc, group("g", 3), nodes("3", "any-a")}},
		{"gang that fits after a node is added", []step{nodes("2", "any-a"), abc, group("g", 3), nodes("2", "any-b")}},
		{"gang that fits after a pod is deleted", []step{nodes("2", "any-a"), pods("o", on("any-a")), pods("a b", in("g")), group("g", 2), gone("o")}},
		{"gang that fits after it needs fewer", []step{nodes("2", "any-a"), abc, group("g", 3), needsOnly("g", 2)}},
		{"gang whose first pod fits nowhere", []step{nodes("2", "any-a"), pods("a", in("g"), needs("3")), pods("b c", in("g")), group("g", 3)}},
		{"gang of fewer than its pods, the first fits nowhere", []step{nodes("2", "any-a"), pods("a", in("g"), needs("3")), pods("b c", in("g")), group("g", 2)}},
		{"gang that loses a pod before it fits", []step{nodes("2", "any-a"), abc, group("g", 3), gone("c"), nodes("2", "any-b"), pods("d", in("g"))}},
		{"gang of too few pods", []step{nodes("2", "any-a"), group("g", 3), pods("a b", in("g")), needsOnly("g", 2)}},
		{"two gangs that compete", []step{nodes("2", "any-a", "any-b"), pods("a1 a2 a3", in("a")), pods("b1 b2 b3", in("b")), group("a", 3), group("b", 3), gone("a1 a2 a3")}},
		{"two gangs, the later one is more important", []step{
			schedulerKilled, nodes("3", "any-a"), pods("a1 a2 a3", in("a")), group("a", 3), pods("b1 b2 b3", in("b"), class("high")), group("b", 3, classOf("high")), schedulerStarts, gone("b1 b2 b3"),
		}},
		{"gang and pods by themselves", []step{nodes("2", "any-a"), pods("o", needs("1500m")), pods("a b", in("g")), group("g", 2), pods("p", needs("500m")), gone("o p")}},
		{"group that does not exist", []step{nodes("2", "any-a"), pods("a", in("g"))}},
		{"group that is deleted while its pods are held", []step{nodes("2", "any-a"), group("g", 2), pods("a", in("g")), deleteGroup("g"), pods("b", in("g")), group("g", 2)}},
		{"group that is deleted while its pods do not fit", []step{nodes("1", "any-a"), pods("a b", in("g")), group("g", 2), deleteGroup("g"), nodes("1", "any-b"), group("g", 2)}},
		{"group that is deleted while its pods run", []step{nodes("2", "any-a"), pods("a b", in("g")), group("g", 2), deleteGroup("g"), pods("c", in("g"), needs("100m"))}},
		{"scheduler that is killed while a gang waits", []step{nodes("2", "any-a"), pods("a b c", in("g")), group("g", 3), schedulerKilled, nodes("2", "any-b"), schedulerStarts}},
		{"scheduler that starts with a gang of which a part is bound", []step{
			schedulerKilled, nodes("2", "any-a"), pods("a", in("g"), on("any-a")), pods("b c", in("g")), group("g", 3), schedulerStarts, nodes("1", "node-b"),
		}},
		{"scheduler that starts with a gang that is bound", []step{schedulerKilled, nodes("2", "any-a"), pods("a b", in("g"), on("any-a")), group("g", 2), schedulerStarts}},
	}
}

// late are about pods beyond those that a gang needs.
func late() []scenario {
	begin := all(nodes("2", "any-a"), pods("a b", in("g")), group("g", 2))
	return []scenario{
		{"more pods than needed", []step{nodes("2", "any-a"), pods("a b c", in("g")), group("g", 2), nodes("1", "node-b")}},
		{"late pod that fits", []step{begin, nodes("1", "node-b"), pods("c", in("g"))}},
		{"late pod that fits nowhere", []step{begin, pods("c d", in("g")), nodes("1", "node-b"), nodes("1", "node-c")}},
		{"late pods of which one fits", []step{begin, nodes("1", "node-b"), pods("c d", in("g"))}},
		{"replacement of a pod that was deleted", []step{begin, gone("a"), pods("c", in("g"))}},
		{"replacement of a pod that has ended", []step{begin, ends("a"), pods("c", in("g"))}},
		{"replacement of one of two pods that have ended", []step{begin, ends("a b"), pods("c", in("g")), pods("d", in("g"))}},
		{"late pod with gates holds others", []step{all(nodes("4", "any-a"), pods("a b", in("g")), group("g", 2)), pods("c", in("g"), gated), pods("d", in("g")), openGates("c")}},
	}
}

// others are about gates, errors and the policy basic.
func others() []scenario {
	return []scenario{
		{"gang with gates", []step{nodes("3", "any-a"), group("g", 2), pods("a", in("g")), pods("b", in("g"), gated), pods("c", in("g")), openGates("b")}},
		{"basic group", []step{nodes("2", "any-a"), pods("a b c", in("g")), group("g", 0), nodes("1", "node-b")}},
		{"basic group of which none fits", []step{nodes("1", "any-a"), pods("a b", in("g"), needs("2")), group("g", 0), nodes("2", "node-b")}},
		{"basic group without nodes", []step{group("g", 0), pods("a", in("g")), nodes("1", "any-a")}},
		{"basic group with gates", []step{nodes("3", "any-a"), group("g", 0), pods("a", in("g"), gated), pods("b", in("g")), openGates("a")}},
		{"pod of another priority", []step{nodes("3", "any-a"), pods("a", in("g")), pods("b", in("g"), class("high")), group("g", 2), gone("b"), pods("c", in("g"))}},
		{"pod of another priority in a basic group", []step{nodes("3", "any-a"), pods("a", in("g")), pods("b", in("g"), class("high")), group("g", 0)}},
		{"pod of another preemption policy", []step{nodes("3", "any-a"), pods("a", in("g"), class("high")), pods("b", in("g"), class("patient")), group("g", 2, classOf("high"))}},
		{"late pod of another priority", []step{nodes("3", "any-a"), pods("a b", in("g")), group("g", 2), pods("c", in("g"), class("high"))}},
	}
}

// preemptions are about groups that take the places of others.
func preemptions() []scenario {
	full := all(nodes("2", "node-a"), pods("o1", on("node-a"), began(1)), pods("o2", on("node-a"), began(2)))
	gang := all(pods("a b", in("g"), class("high")), group("g", 2, classOf("high")))
	return []scenario{
		{"gang preempts", []step{full, gang, victimsGone}},
		{"gang preempts one of two", []step{nodes("3", "node-a"), pods("o1", on("node-a"), began(1)), pods("o2", on("node-a"), began(2)), gang, victimsGone}},
		{"gang does not fit without others either", []step{full, pods("a b c", in("g"), class("high")), group("g", 3, classOf("high"))}},
		{"gang that never preempts", []step{full, pods("a b", in("g"), class("patient")), group("g", 2, classOf("patient"))}},
		{"gang of priority 0", []step{full, pods("a b", in("g")), group("g", 2)}},
		{"gang preempts the lowest", []step{
			nodes("3", "node-a"), pods("o1", on("node-a"), class("middle"), began(1)), pods("o2", on("node-a"), class("low"), began(2)), pods("o3", on("node-a"), class("low"), began(3)), gang, victimsGone,
		}},
		{"gang spares what a budget protects", []step{
			nodes("3", "node-a"), pods("o1", on("node-a"), labelled("kept"), began(3)), pods("o2", on("node-a"), began(2)), pods("o3", on("node-a"), began(1)), budget("kept", 0), gang, victimsGone,
		}},
		{"gang whose victims go one after another", []step{full, gang, gone("o1"), pods("p", needs("1")), gone("o2")}},
		{"gang that is deleted while its victims go", []step{full, gang, gone("a b"), victimsGone, pods("p")}},
		{"gang whose node goes before its victims", []step{full, gang, deleteNode("node-a"), victimsGone, nodes("2", "node-b")}},
		{"scheduler that is killed while the victims of a gang go", []step{full, gang, schedulerKilled, victimsGone, schedulerStarts}},
		{"scheduler that is killed before the victims of a gang go", []step{full, gang, schedulerKilled, schedulerStarts, victimsGone}},
		{"late pod preempts", []step{nodes("3", "node-a"), pods("o1", on("node-a"), began(1)), gang, pods("c", in("g"), class("high")), victimsGone}},
		// kube-scheduler takes as many pods as have come when it begins.
		{"more pods than needed preempt", []step{full, all(schedulerKilled, pods("a b c", in("g"), class("high")), group("g", 1, classOf("high"))), schedulerStarts, victimsGone}},
		{"basic group preempts", []step{full, pods("a b c", in("g"), class("high")), group("g", 0, classOf("high")), victimsGone}},
		{"basic group of which one fits preempts", []step{nodes("2", "node-a"), pods("o1", on("node-a"), began(1)), pods("a b", in("g"), class("high")), group("g", 0, classOf("high")), victimsGone}},
		{"two gangs that preempt", []step{
			full, gang, pods("x y", in("h"), class("high")), group("h", 2, classOf("high")), victimsGone,
		}},
		{"more important pod takes the places of a gang that waits", []step{full, pods("a b", in("g"), class("middle")), group("g", 2, classOf("middle")), pods("p", class("high"), needs("2")), victimsGone}},
	}
}

// units are about groups that are preempted.
func units() []scenario {
	rooms := nodes("2", "node-a", "node-b")
	wide := all(pods("v1", in("v"), on("node-a"), began(1)), pods("v2", in("v"), on("node-b"), began(2)))
	high := pods("p", class("high"), needs("2"))
	return []scenario{
		{"pod preempts a group one by one", []step{nodes("2", "node-a"), group("v", 2), pods("v1 v2", in("v"), on("node-a"), began(1)), pods("p", class("high")), victimsGone}},
		{"pod preempts a group as a whole", []step{nodes("2", "node-a", "node-b"), group("v", 2, together), wide, pods("o1", on("node-b"), began(3)), pods("p", class("high"), needs("2")), victimsGone}},
		{"pod preempts a single pod rather than a group", []step{nodes("2", "node-a"), group("v", 1, together), pods("v1", in("v"), on("node-a"), began(2)), pods("o1", on("node-a"), began(1)), pods("p", class("high")), victimsGone}},
		{"pod preempts the pod of a group last", []step{nodes("2", "node-a"), group("v", 1), pods("v1", in("v"), on("node-a"), began(2)), pods("o1", on("node-a"), began(1)), pods("p", class("high")), victimsGone}},
		{"pod spares the larger group", []step{
			nodes("3", "node-a"), group("v", 2, together), group("w", 1, together), pods("v1 v2", in("v"), on("node-a"), began(2)), pods("w1", in("w"), on("node-a"), began(1)), pods("p", class("high")), victimsGone,
		}},
		{"pod spares a group one of whose pods a budget protects", []step{
			rooms, group("v", 2, together), wide, pods("v3", in("v"), on("node-b"), labelled("kept"), began(3)), budget("kept", 0), pods("o1 o2", on("node-a"), needs("500m"), began(4)), high, victimsGone,
		}},
		{"gang preempts a gang as a whole", []step{
			nodes("2", "any-a", "any-b"), group("v", 2, together), pods("v1", in("v"), on("any-a"), began(1)), pods("v2", in("v"), on("any-b"), began(2)),
			pods("a b c", in("g"), class("high")), group("g", 3, classOf("high")), victimsGone,
		}},
		{"gang preempts a gang one by one", []step{
			nodes("3", "node-a"), group("v", 2), pods("v1", in("v"), on("node-a"), began(1)), pods("v2", in("v"), on("node-a"), began(2)), pods("a b", in("g"), class("high")), group("g", 2, classOf("high")), victimsGone,
		}},
		{"gang preempts pods rather than a gang", []step{
			nodes("3", "node-a"), group("v", 1, together), pods("v1", in("v"), on("node-a"), began(3)), pods("o1 o2", on("node-a"), began(0)), pods("a b", in("g"), class("high")), group("g", 2, classOf("high")), victimsGone,
		}},
		{"group of another priority than its pods", []step{nodes("2", "node-a"), group("v", 1, classOf("high"), together), pods("v1 v2", in("v"), on("node-a"), began(1)), pods("p", class("middle"))}},
		{"group that is gone is preempted one by one", []step{nodes("2", "node-a"), pods("v1", in("v"), on("node-a"), began(1)), pods("v2", in("v"), on("node-a"), began(2)), pods("p", class("high")), victimsGone}},
	}
}

// claims are about gangs whose pods use the same resource claim.
func claims() []scenario {
	return []scenario{
		{"gang that shares a claim", []step{nodes("3", "node-a"), devices("node-a", 1), claim("gpu"), pods("a b c", in("g"), uses("gpu")), group("g", 3)}},
		{"gang that shares a claim and does not fit", []step{nodes("2", "node-a"), nodes("2", "node-b"), devices("node-a", 1), claim("gpu"), pods("a b c", in("g"), uses("gpu")), group("g", 3), gone("c"), pods("d", in("g"))}},
		{"late pod that shares a claim", []step{nodes("3", "node-a"), devices("node-a", 1), claim("gpu"), pods("a b", in("g"), uses("gpu")), group("g", 2), pods("c", in("g"), uses("gpu"))}},
		{"gang with a claim each and too few devices", []step{nodes("3", "node-a"), devices("node-a", 1), claim("gpu"), claim("other"), pods("a", in("g"), uses("gpu")), pods("b", in("g"), uses("other")), group("g", 2), gone("a")}},
	}
}
