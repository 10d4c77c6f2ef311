package controllers

import (
	"fmt"
	"slices"
)

// rare are scenarios of fields that are rarely used, and of several of them together.
func rare() []scenario { return slices.Concat(rareJobs(), rareStatefulSets(), rareDaemonSets()) }

func rareJobs() (all []scenario) {
	const job = "Job web"
	web := func(spec, restart string) step {
		return create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {%s, template: {metadata: {labels: {app: web}}, spec: {restartPolicy: %s, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}}}`, spec, restart)
	}
	const three = "completions: 3, parallelism: 3, completionMode: Indexed"
	onExit := func(rules string) string { return ", podFailurePolicy: {rules: [" + rules + "]}" }
	for spec, steps := range map[string][]step{
		three + ", backoffLimitPerIndex: 2" + onExit("{action: FailIndex, onExitCodes: {operator: In, values: [42]}}"):                                                               {answer("fail42", "web-1~1"), answer("finish", "*"), rollout()},
		three + ", backoffLimitPerIndex: 0" + onExit("{action: Ignore, onExitCodes: {operator: In, values: [42]}}"):                                                                  {answer("fail42", "web-1~1"), reaches(job, "status.active", "3"), answer("finish", "*")},
		three + ", backoffLimitPerIndex: 5, backoffLimit: 0":                                                                                                                         {answer("fail", "web-1~1"), rollout()},
		three + ", backoffLimitPerIndex: 0, maxFailedIndexes: 0":                                                                                                                     {answer("fail", "web-2~1"), rollout()},
		three + ", backoffLimitPerIndex: 0, maxFailedIndexes: 3":                                                                                                                     {answer("fail", "*"), rollout()},
		three + ", backoffLimitPerIndex: 0, successPolicy: {rules: [{succeededIndexes: \"0,2\", succeededCount: 1}]}":                                                                {answer("fail", "web-0~1"), answer("finish", "web-2~1"), rollout()},
		three + ", backoffLimit: 0, successPolicy: {rules: [{succeededIndexes: \"0-1\"}, {succeededCount: 3}]}":                                                                      {answer("finish", "web-0~1"), answer("finish", "web-2~1"), answer("fail", "web-1~1"), rollout()},
		three + ", backoffLimit: 6, successPolicy: {rules: [{succeededIndexes: \"1\"}]}":                                                                                             {answer("finish", "web-1~1"), answer("finish", "web-0~1"), answer("stop", "*"), rollout()},
		three + ", suspend: true, successPolicy: {rules: [{succeededCount: 1}]}":                                                                                                     {patch(job, "{spec: {suspend: false}}"), answer("run", "*"), patch(job, "{spec: {suspend: true}}"), answer("finish", "web-0~1"), rollout()},
		three + ", podReplacementPolicy: Failed":                                                                                                                                     {answer("kill", "web-1~1"), answer("fail", "web-0~1"), answer("stop", "*"), reaches(job, "status.active", "3"), rollout(), answer("finish", "*")},
		"backoffLimit: 0" + onExit(`{action: Count, onExitCodes: {containerName: c, operator: NotIn, values: [42]}}, {action: Ignore, onExitCodes: {operator: In, values: [42]}}`):   {answer("fail42", "*"), reaches(job, "status.active", "1"), answer("run", "*"), answer("fail", "*"), rollout()},
		"backoffLimit: 0" + onExit(`{action: FailJob, onPodConditions: [{type: DisruptionTarget, status: "False"}]}, {action: Ignore, onPodConditions: [{type: DisruptionTarget}]}`): {answer("disrupt", "*"), answer("kill", "*"), answer("stop", "*"), reaches(job, "status.active", "1"), rollout()},
		"backoffLimit: 0, activeDeadlineSeconds: 1, suspend: true":                                                                                                                   {patch(job, "{spec: {suspend: false}}"), reaches(job, "Failed?", "True"), rollout()},
		"backoffLimit: 0, ttlSecondsAfterFinished: 1":                                                                                                                                {answer("fail", "*"), reaches(job, "", "gone")},
		"completions: 3, parallelism: 0":                                                                                                                                             {patch(job, "{spec: {parallelism: 2}}"), answer("finish", "*"), patch(job, "{spec: {parallelism: 0}}"), rollout(), patch(job, "{spec: {parallelism: 1}}"), answer("finish", "*")},
		"parallelism: 3":                                                                                                                                                             {answer("run", "*"), answer("finish", "web~1"), answer("fail", "web~2"), rollout(), answer("finish", "*")},
	} {
		all = append(all, scenario{"job rare, " + spec, append([]step{web(spec, "Never"), answer("run", "*")}, steps...)})
	}
	for _, limit := range []int{0, 1} {
		all = append(all, each(fmt.Sprintf("job rare, containers that restart, backoffLimit: %d", limit), []step{web(fmt.Sprintf("backoffLimit: %d, completions: 2, parallelism: 2", limit), "OnFailure"), answer("run", "*")}, []operation{
			{"once", []step{answer("restart", "web~1"), rollout(), answer("finish", "*")}},
			{"each", []step{answer("restart", "*"), rollout(), answer("finish", "*")}},
			{"and fail", []step{answer("restart", "web~1"), answer("fail", "web~2"), rollout()}},
		})...)
	}
	labeled := create(`{apiVersion: v1, kind: Pod, metadata: {name: bare, labels: {app: web}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]}}`)
	manual := web("manualSelector: true, selector: {matchLabels: {app: web}}, completions: 2, parallelism: 1, backoffLimit: 0", "Never")
	return append(all,
		scenario{"job rare, adopts a pod", []step{labeled, manual, answer("run", "*"), answer("finish", "bare"), answer("finish", "*")}},
		scenario{"job rare, does not adopt an ended pod", []step{labeled, answer("finish", "bare"), manual, answer("run", "*"), answer("finish", "*"), answer("finish", "*")}},
	)
}

func rareStatefulSets() (all []scenario) {
	const set = "StatefulSet web"
	partition := func(n int) step {
		return patch(set, fmt.Sprintf("{spec: {updateStrategy: {rollingUpdate: {partition: %d}}}}", n))
	}
	for _, policy := range []string{"OrderedReady", "Parallel"} {
		for _, retention := range []string{"{whenDeleted: Delete, whenScaled: Retain}", "{whenDeleted: Retain, whenScaled: Delete}"} {
			begin := []step{create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 4, serviceName: web, podManagementPolicy: %s, persistentVolumeClaimRetentionPolicy: %s,
				updateStrategy: {rollingUpdate: {partition: 1, maxUnavailable: 2}}, selector: {matchLabels: {app: web}}, template: %s, %s}}`, policy, retention, template, claims[1:len(claims)-1]), rollout()}
			all = append(all, each("stateful set rare, "+policy+", "+retention, begin, []operation{
				{"update in parts", []step{newImage(set, "2"), answer("stop", "*"), rollout(), partition(0), rollout()}},
				{"update beside pods that are not ready", []step{answer("unready", "web-1"), answer("unready", "web-2"), newImage(set, "2"), rollout(), answer("run", "web-0"), rollout()}},
				{"scale during an update", []step{newImage(set, "2"), scale(set, 2), answer("stop", "*"), rollout(), scale(set, 5), rollout()}},
				{"scale below the partition", []step{partition(3), newImage(set, "2"), rollout(), scale(set, 1), rollout(), scale(set, 4), rollout()}},
				{"scale while a pod is held", []step{patch("Pod web-3", `{metadata: {finalizers: [example.com/hold]}}`), scale(set, 2), rollout(), newImage(set, "2"), rollout(), patch("Pod web-3", `{metadata: {finalizers: null}}`), rollout()}},
				{"policy changed between", []step{scale(set, 2), rollout(), patch(set, "{spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}}}"), rollout(), scale(set, 1), rollout(), remove(set, foreground), rollout()}},
				{"created again", []step{remove(set, orphan), rollout(), begin[0], rollout(), scale(set, 1), rollout()}},
			})...)
		}
	}
	return all
}

func rareDaemonSets() (all []scenario) {
	const set = "DaemonSet web"
	node := func(name string) []step {
		return []step{
			create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-%s, labels: {scenario: PLACE, topology.kubernetes.io/zone: PLACE}}}`, name),
			patch("Node/status PLACE-"+name, `{status: {allocatable: {cpu: "100", memory: 100Gi, pods: "100"}, capacity: {cpu: "100", memory: 100Gi, pods: "100"}, conditions: [{type: Ready, status: "True", reason: Test}]}}`),
		}
	}
	taint := func(effect string) step {
		return patch("Node PLACE-a", "{spec: {taints: [{key: x, effect: "+effect+"}]}}")
	}
	untaint := patch("Node PLACE-a", "{spec: {taints: null}}")
	// As many as there are nodes, as kube-controller-manager begins with either.
	for strategy, text := range map[string]string{"surge 2": "{maxSurge: 2, maxUnavailable: 0}", "surge all": `{maxSurge: "100%%", maxUnavailable: 0}`} {
		begin := slices.Concat(node("a"), node("b"), []step{create(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}, spec: {updateStrategy: {rollingUpdate: `+text+`}, selector: {matchLabels: {app: web}}, template: %s}}`, onNodes), rollout()})
		all = append(all, each("daemon set rare, "+strategy, begin, []operation{
			{"tainted in an update", []step{newImage(set, "2"), taint("NoSchedule"), rollout(), untaint, rollout()}},
			{"tainted before an update", []step{taint("NoSchedule"), newImage(set, "2"), rollout(), untaint, rollout()}},
			{"old pod deleted in an update", []step{newImage(set, "2"), answer("kill", "web@PLACE-a~1"), rollout()}},
			{"new pod fails", []step{newImage(set, "2"), answer("fail", "web@PLACE-a~2"), rollout()}},
			{"old pod fails in an update", []step{newImage(set, "2"), answer("fail", "web@PLACE-a~1"), rollout()}},
			{"available later", []step{patch(set, "{spec: {minReadySeconds: 2}}"), newImage(set, "2"), rollout()}},
			{"label removed in an update", []step{newImage(set, "2"), patch("Node PLACE-a", "{metadata: {labels: {scenario: other}}}"), rollout()}},
			{"on delete in an update", []step{newImage(set, "2"), patch(set, "{spec: {updateStrategy: {type: OnDelete, rollingUpdate: null}}}"), rollout()}},
			{"no surge in an update", []step{newImage(set, "2"), patch(set, "{spec: {updateStrategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}}}"), rollout()}},
		})...)
	}
	return all
}
