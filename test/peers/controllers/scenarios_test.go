package controllers

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// scenarios returns all, of each group of kinds.
func scenarios() []scenario {
	all := slices.Concat(
		statefulSets(), deployments(), replicaSets(), daemonSets(),
		jobs(), cronJobs(), autoscalers(), loads(), disruptionBudgets(),
		services(), quotas(), namespaces(), owners(), volumes(), attachments(), nodes(), accounts(), deviceTaints(), poolStatusRequests(), storageMigrations(), unusual(), rare(),
	)
	slices.SortFunc(all, func(a, b scenario) int { return strings.Compare(a.name, b.name) })
	return all
}

// operation is a part of a script, with a name.
type operation struct {
	name  string
	steps []step
}

// template is the template of the pods of the label app=web.
const template = `{metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}`

// onNodes is template for nodes of the scenario only.
const onNodes = `{metadata: {labels: {app: web}}, spec: {nodeSelector: {scenario: PLACE}, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}`

// newImage changes the image of a workload.
func newImage(object, tag string) step {
	return patch(object, `{spec: {template: {spec: {containers: [{name: c, image: "web:`+tag+`"}]}}}}`)
}

func scale(object string, replicas int) step {
	return patch(object, fmt.Sprintf("{spec: {replicas: %d}}", replicas))
}

// each makes a scenario of each operation, after steps that all of them begin with.
func each(name string, begin []step, operations []operation) (all []scenario) {
	for _, o := range operations {
		all = append(all, scenario{name: name + ", " + o.name, steps: slices.Concat(begin, o.steps)})
	}
	return all
}

func statefulSets() (all []scenario) {
	const set = "StatefulSet web"
	operations := []operation{
		{"start by hand", []step{answer("run", "web-0"), answer("run", "web-1"), answer("start", "web-2"), answer("run", "web-2")}},
		{"scale", []step{rollout(), scale(set, 5), rollout(), scale(set, 1), answer("stop", "*"), rollout(), scale(set, 0), rollout(), scale(set, 2), rollout()}},
		{"update", []step{rollout(), newImage(set, "2"), answer("stop", "*"), answer("run", "*"), rollout(), newImage(set, "1"), rollout()}},
		{"update that never gets ready", []step{rollout(), newImage(set, "2"), answer("stop", "*"), answer("start", "*"), newImage(set, "3"), answer("stop", "*"), rollout()}},
		{"update while a pod is not ready", []step{rollout(), answer("unready", "web-1"), newImage(set, "2"), answer("stop", "*"), answer("run", "*"), answer("stop", "*"), rollout()}},
		{"update with deleted pods", []step{rollout(), newImage(set, "2"), answer("kill", "web-0"), rollout(), answer("kill", "web-2"), rollout()}},
		{"scale during an update", []step{rollout(), newImage(set, "2"), scale(set, 4), answer("stop", "*"), answer("run", "*"), rollout()}},
		{"failed pods", []step{rollout(), answer("fail", "web-1"), rollout(), answer("finish", "web-0"), answer("fail", "web-2"), rollout()}},
		{"orphans", []step{rollout(), remove(set, orphan), rollout()}},
		{"foreground", []step{answer("run", "web-0"), remove(set, foreground), answer("stop", "*"), rollout()}},
		{"background", []step{rollout(), remove(set, background), rollout()}},
		{"another label", []step{rollout(), patch("Pod web-1", `{metadata: {labels: {app: other}}}`), rollout(), remove("Pod web-1", background), rollout()}},
	}
	for _, policy := range []string{"OrderedReady", "Parallel"} {
		for strategy, text := range map[string]string{
			"rolling": "{type: RollingUpdate}", "partition 1": "{type: RollingUpdate, rollingUpdate: {partition: 1}}", "on delete": "{type: OnDelete}",
		} {
			begin := []step{create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 3, serviceName: web, podManagementPolicy: %s, updateStrategy: %s,
				selector: {matchLabels: {app: web}}, template: %s}}`, policy, text, template)}
			all = append(all, each("stateful set "+policy+" "+strategy, begin, operations)...)
		}
	}
	for name, text := range map[string]string{
		"start ordinal":      "{ordinals: {start: 5}}",
		"min ready":          "{minReadySeconds: 3}",
		"parallel min ready": "{minReadySeconds: 3, podManagementPolicy: Parallel}",
		"history 0":          "{revisionHistoryLimit: 0}",
		"claims":             claims,
		"claims with policy": `{persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}, ` + claims[1:],
		"claims of scaled":   `{persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}, ` + claims[1:],
		"claims of deleted":  `{persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}, ` + claims[1:],
	} {
		begin := []step{create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 2, serviceName: web, selector: {matchLabels: {app: web}}, template: %s, %s}`, template, text[1:])}
		all = append(all, each("stateful set with "+name, begin, []operation{
			{"scale", []step{rollout(), scale(set, 3), rollout(), scale(set, 1), rollout(), scale(set, 2), rollout()}},
			{"updates", []step{rollout(), newImage(set, "2"), rollout(), newImage(set, "3"), rollout()}},
			{"deletion", []step{rollout(), remove(set, foreground), rollout()}},
			{"orphans", []step{rollout(), remove(set, orphan)}},
		})...)
	}
	return all
}

// claims is the end of the specification of a stateful set with a claim for each pod.
const claims = `{volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}]}`

func deployments() (all []scenario) {
	const web = "Deployment web"
	operations := []operation{
		{"scale", []step{slowly(), scale(web, 5), answer("run", "web~1~4"), slowly(), scale(web, 1), slowly(), scale(web, 0), slowly()}},
		{"update by hand", []step{slowly(), newImage(web, "2"), answer("run", "web~2~1"), answer("stop", "*"), answer("run", "web~2~2"), answer("stop", "*"), slowly()}},
		{"update and back", []step{slowly(), newImage(web, "2"), slowly(), newImage(web, "1"), slowly()}},
		{"update during an update", []step{slowly(), newImage(web, "2"), answer("start", "web~2*"), newImage(web, "3"), slowly()}},
		{"scale during an update", []step{slowly(), newImage(web, "2"), scale(web, 7), answer("stop", "*"), scale(web, 2), slowly()}},
		{"pause", []step{slowly(), patch(web, "{spec: {paused: true}}"), newImage(web, "2"), scale(web, 4), slowly(), patch(web, "{spec: {paused: false}}"), slowly()}},
		{"failing pods", []step{slowly(), answer("fail", "web~1~1"), slowly(), answer("unready", "web~1~2"), answer("kill", "web~1~3"), slowly()}},
		{"deadline", []step{slowly(), patch(web, "{spec: {progressDeadlineSeconds: 3}}"), newImage(web, "2"), answer("stop", "*"), reaches(web, "Progressing?", "False"), slowly()}},
		{"foreground", []step{slowly(), remove(web, foreground), slowly()}},
		{"orphans", []step{slowly(), remove(web, orphan), slowly()}},
	}
	for strategy, text := range map[string]string{
		"default": "{}", "surge 2": "{type: RollingUpdate, rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}", "unavailable 2": "{type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
		"half": `{type: RollingUpdate, rollingUpdate: {maxSurge: "50%", maxUnavailable: "50%"}}`, "recreate": "{type: Recreate}",
	} {
		begin := []step{create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, annotations: {note: x}}, spec: {replicas: 3, strategy: %s, selector: {matchLabels: {app: web}}, template: %s}}`, text, template)}
		all = append(all, each("deployment "+strategy, begin, operations)...)
	}
	for name, text := range map[string]string{
		"history 0": "revisionHistoryLimit: 0", "history 1": "revisionHistoryLimit: 1", "min ready": "minReadySeconds: 3", "no deadline": "progressDeadlineSeconds: 2147483647",
	} {
		begin := []step{create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, %s, selector: {matchLabels: {app: web}}, template: %s}}`, text, template)}
		all = append(all, each("deployment with "+name, begin, []operation{
			{"updates", []step{slowly(), newImage(web, "2"), slowly(), newImage(web, "3"), slowly(), newImage(web, "4"), slowly()}},
			{"annotations", []step{slowly(), patch(web, `{metadata: {annotations: {kubernetes.io/change-cause: one}}}`), slowly(), newImage(web, "2"), slowly()}},
		})...)
	}
	return all
}

func replicaSets() (all []scenario) {
	for kind, text := range map[string]string{
		"ReplicaSet":            `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: ` + template + `}}`,
		"ReplicationController": `{apiVersion: v1, kind: ReplicationController, metadata: {name: web}, spec: {replicas: 3, selector: {app: web}, template: ` + template + `}}`,
	} {
		set := kind + " web"
		// Of pods that are equal otherwise, that with the lower random UID is deleted.
		bare := create(`{apiVersion: v1, kind: Pod, metadata: {name: bare, labels: {app: web}, annotations: {controller.kubernetes.io/pod-deletion-cost: "-5"}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:0"}]}}`)
		all = append(all, each(kind, []step{create("%s", text)}, []operation{
			{"scale", []step{rollout(), scale(set, 6), answer("run", "web~4"), scale(set, 2), rollout(), scale(set, 0), rollout()}},
			{"scale down unready first", []step{answer("run", "web~2"), answer("start", "web~3"), scale(set, 2), rollout(), scale(set, 1), rollout()}},
			{"scale down by cost", []step{rollout(), patchPod("web~2", `{metadata: {annotations: {controller.kubernetes.io/pod-deletion-cost: "-5"}}}`), scale(set, 2), rollout()}},
			{"failures", []step{rollout(), answer("fail", "web~1"), answer("finish", "web~2"), rollout()}},
			{"kill", []step{rollout(), answer("kill", "web~1"), answer("kill", "web~4"), rollout()}},
			{"orphans and adoption", []step{rollout(), remove(set, orphan), create("%s", text), rollout(), scale(set, 1), rollout()}},
			{"release", []step{rollout(), patchPod("web~1", `{metadata: {labels: {app: other}}}`), rollout(), patchPod("web~1", `{metadata: {labels: {app: web}}}`), rollout()}},
			{"foreground", []step{rollout(), remove(set, foreground), rollout()}},
			{"background", []step{rollout(), remove(set, background), rollout()}},
			{"new template", []step{rollout(), newImage(set, "2"), answer("kill", "web~1"), rollout()}},
			{"quota", []step{rollout(), create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {pods: "4"}}}`), scale(set, 6), rollout(), scale(set, 2), rollout()}},
			{"min ready", []step{rollout(), patch(set, "{spec: {minReadySeconds: 2}}"), scale(set, 4), rollout()}},
		})...)
		all = append(all, scenario{kind + ", adopts a pod", []step{bare, answer("run", "bare"), create("%s", text), rollout(), scale(set, 1), rollout()}})
		all = append(all, scenario{kind + ", does not adopt an ended pod", []step{bare, answer("finish", "bare"), create("%s", text), rollout()}})
	}
	return all
}

// patchPod is patch for a pod with the name under which it is compared.
func patchPod(name, text string) step { return patch("Pod "+name, text) }

func daemonSets() (all []scenario) {
	const set = "DaemonSet web"
	node := func(name, labels string) step {
		return create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-%s, labels: {%s}}, spec: {}}`, name, labels)
	}
	ready := func(name string) step {
		return patch("Node/status PLACE-"+name, `{status: {allocatable: {cpu: "100", memory: 100Gi, pods: "100"}, capacity: {cpu: "100", memory: 100Gi, pods: "100"}, conditions: [{type: Ready, status: "True", reason: Test}]}}`)
	}
	// The pods of both nodes at the same time: of one after another, either may be the first.
	together := map[string]string{
		"default": ", updateStrategy: {rollingUpdate: {maxUnavailable: 2}}", "surge": ", updateStrategy: {rollingUpdate: {maxSurge: 2}}",
	}
	for strategy, text := range map[string]string{
		"default": "{}", "surge": "{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", "unavailable all": `{type: RollingUpdate, rollingUpdate: {maxUnavailable: "100%"}}`, "on delete": "{type: OnDelete}",
	} {
		begin := []step{
			node("a", "scenario: PLACE"), ready("a"), node("b", "scenario: PLACE"), ready("b"),
			create(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}, spec: {updateStrategy: %s, selector: {matchLabels: {app: web}}, template: %s}}`, text, onNodes),
		}
		all = append(all, each("daemon set "+strategy, begin, []operation{
			{"start", []step{answer("run", "web@PLACE-a~1"), rollout()}},
			{"update", []step{rollout(), newImage(set, "2"), answer("stop", "*"), rollout(), newImage(set, "1"), rollout()}},
			{"update of pods that are not ready", []step{answer("start", "*"), newImage(set, "2"), answer("stop", "*"), rollout()}},
			{"update with a deleted pod", []step{rollout(), newImage(set, "2"), answer("kill", "web@PLACE-b~1"), rollout()}},
			{"failure", []step{rollout(), answer("fail", "web@PLACE-a~1"), rollout()}},
			{"taint", []step{rollout(), patch("Node PLACE-a", "{spec: {taints: [{key: x, effect: NoSchedule}]}}"), rollout(), patch("Node PLACE-a", "{spec: {taints: [{key: x, effect: NoExecute}]}}"), rollout(), patch("Node PLACE-a", "{spec: {taints: null}}"), rollout()}},
			{"label", []step{rollout(), patch("Node PLACE-a", "{metadata: {labels: {scenario: other}}}"), rollout(), patch("Node PLACE-a", "{metadata: {labels: {scenario: PLACE}}}"), rollout()}},
			{"cordon", []step{patch("Node PLACE-a", "{spec: {unschedulable: true}}"), rollout()}},
			{"selector", []step{rollout(), patch(set, `{spec: {template: {spec: {nodeSelector: {more: x}}}}}`), rollout(), patch("Node PLACE-b", "{metadata: {labels: {more: x}}}"), rollout()}},
			{"min ready", []step{patch(set, `{spec: {minReadySeconds: 2`+together[strategy]+`}}`), rollout(), newImage(set, "2"), rollout()}},
			{"orphans", []step{rollout(), remove(set, orphan)}},
			{"foreground", []step{rollout(), remove(set, foreground), rollout()}},
		})...)
	}
	return all
}
