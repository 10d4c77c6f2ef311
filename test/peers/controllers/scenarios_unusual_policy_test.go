package controllers

import "slices"

func unusualBudgets() (all []scenario) {
	budget := func(spec string) step {
		return create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {%s}}`, spec)
	}
	const selected = ", selector: {matchLabels: {app: web}}"
	job := create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {parallelism: 3, completions: 3, template: {metadata: {labels: {app: web}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}}}`)
	daemons := []step{
		create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-a, labels: {scenario: PLACE, topology.kubernetes.io/zone: PLACE}}}`),
		patch("Node/status PLACE-a", `{status: {allocatable: {cpu: "100", memory: 100Gi, pods: "100"}, conditions: [{type: Ready, status: "True", reason: Test}]}}`),
		create(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: %s}}`, onNodes),
	}
	other := create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: other}, spec: {replicas: 2, selector: {matchLabels: {app: web, more: x}}, template: {metadata: {labels: {app: web, more: x}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]}}}}`)
	for _, limit := range []string{"maxUnavailable: 1", "minAvailable: 1", `minAvailable: "100%"`, `maxUnavailable: "50%"`} {
		all = append(all,
			scenario{"disruption budget unusual, " + limit + " of a job", []step{job, rollout(), budget(limit + selected), evict("*1"), rollout()}},
			scenario{"disruption budget unusual, " + limit + " of a daemon set", append(slices.Clone(daemons), rollout(), budget(limit+selected), evict("*1"), rollout())},
			scenario{"disruption budget unusual, " + limit + " of two deployments", []step{webs("Deployment"), other, rollout(), budget(limit + selected), evict("web*1"), evict("other*1"), scale("Deployment other", 0), rollout()}},
			scenario{"disruption budget unusual, " + limit + " of all pods", []step{webs("Deployment"), webs("Pods"), rollout(), budget(limit + ", selector: {}"), evict("bare"), evict("*1"), rollout()}},
			scenario{"disruption budget unusual, " + limit + " of no pods", []step{budget(limit + ", selector: {matchLabels: {no: such}}")}},
			scenario{"disruption budget unusual, " + limit + " without a selector", []step{webs("ReplicaSet"), rollout(), budget(limit), evict("*1"), rollout()}},
		)
	}
	const web = "PodDisruptionBudget web"
	return append(all, each("disruption budget unusual", []step{webs("ReplicaSet"), budget("minAvailable: 2" + selected), rollout()}, []operation{
		{"status by hand", []step{patch("PodDisruptionBudget/status web", `{status: {disruptionsAllowed: 50, currentHealthy: 9, desiredHealthy: 1, expectedPods: 60}}`)}},
		{"an eviction that is not done", []step{patch("PodDisruptionBudget/status web", `{status: {disruptedPods: {none: "2020-01-01T00:00:00Z"}}}`), evict("*1"), evict("*2"), rollout()}},
		{"pod with a finalizer", []step{patchPod("web~1", `{metadata: {finalizers: [example.com/hold]}}`), answer("kill", "web~1"), rollout(), evict("*2")}},
		{"set deleted", []step{remove("ReplicaSet web", orphan), patch(web, `{spec: {minAvailable: null, maxUnavailable: 1}}`), evict("*1")}},
		{"ended pods", []step{answer("finish", "*1"), rollout(), answer("fail", "*2"), rollout()}},
		{"limits that exclude all", []step{patch(web, `{spec: {minAvailable: 50}}`), evict("*1"), patch(web, `{spec: {minAvailable: "0%"}}`), evict("*1"), rollout()}},
	})...)
}

func unusualJobs() (all []scenario) {
	const job = "Job web"
	web := func(more string) []step {
		return []step{create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {parallelism: 2, completions: 3, %s, template: {metadata: {labels: {app: web}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}}}`, more), answer("run", "*")}
	}
	return append(all, each("job unusual", web("backoffLimit: 0"), []operation{
		{"finished pod deleted", []step{answer("finish", "web~1"), answer("kill", "web~1"), rollout(), answer("finish", "*"), answer("finish", "*")}},
		{"failed pod deleted", []step{answer("fail", "web~1"), answer("kill", "web~1"), rollout()}},
		{"status by hand", []step{patch("Job/status web", `{status: {active: 2, ready: 0, startTime: "2020-01-01T00:00:00Z"}}`), rollout(), answer("finish", "*"), answer("finish", "*")}},
		{"pod released", []step{patchPod("web~1", `{metadata: {labels: {batch.kubernetes.io/controller-uid: other, controller-uid: other}}}`), rollout()}},
		{"suspended when it has finished", []step{answer("finish", "*"), rollout(), answer("finish", "*"), patch(job, "{spec: {suspend: true}}"), patch(job, "{spec: {suspend: false}}")}},
		{"less parallelism than has succeeded", []step{answer("finish", "*"), patch(job, "{spec: {parallelism: 0}}"), rollout(), patch(job, "{spec: {parallelism: 50}}"), rollout()}},
		{"time to live added later", []step{answer("finish", "*"), rollout(), answer("finish", "*"), patch(job, "{spec: {ttlSecondsAfterFinished: 0}}"), reaches(job, "", "gone")}},
		{"deadline added later", []step{patch(job, "{spec: {activeDeadlineSeconds: 1}}"), rollout(), reaches(job, "Failed?", "True"), rollout()}},
		{"pod with a finalizer", []step{patchPod("web~1", `{metadata: {finalizers: [example.com/hold, batch.kubernetes.io/job-tracking]}}`), answer("kill", "web~1"), rollout(), answer("finish", "*"), rollout()}},
	})...)
}

func unusualServices() []scenario {
	begin := []step{
		create(`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: a, port: 80}]}}`), webs("StatefulSet"), rollout(),
	}
	const web = "Service web"
	return each("service unusual", begin, []operation{
		{"slices deleted", []step{removeAll("EndpointSlice"), removeAll("Endpoints")}},
		{"ports changed", []step{patch(web, `{spec: {ports: [{name: b, port: 81, targetPort: 8080}, {name: c, port: 82, protocol: UDP}]}}`), patch(web, `{spec: {ports: [{name: c, port: 82, protocol: UDP}]}}`)}},
		{"selector removed and set", []step{patch(web, `{spec: {selector: null}}`), patch("Pod web-1", `{metadata: {labels: {app: other}}}`), patch(web, `{spec: {selector: {app: web}}}`)}},
		{"not ready addresses published", []step{answer("unready", "web-1"), patch(web, `{spec: {publishNotReadyAddresses: true}}`), answer("kill", "web-0"), patch(web, `{spec: {publishNotReadyAddresses: false}}`)}},
		{"two of the same pods", []step{create(`{apiVersion: v1, kind: Service, metadata: {name: two}, spec: {selector: {app: web}, ports: [{port: 81}]}}`), remove(web, background), answer("kill", "web-2"), rollout()}},
		{"pod with a finalizer", []step{patch("Pod web-1", `{metadata: {finalizers: [example.com/hold]}}`), answer("kill", "web-1"), rollout()}},
		{"deleted and created again", []step{remove(web, orphan), create(`{apiVersion: v1, kind: Service, metadata: {name: web, labels: {x: y}}, spec: {selector: {app: web}, ports: [{name: a, port: 80}]}}`)}},
	})
}

// overlaps are scenarios of two owners with the same selector.
func overlaps() (all []scenario) {
	for _, kind := range []string{"ReplicaSet", "StatefulSet", "Deployment"} {
		second := func(name string) step {
			return create(`{apiVersion: apps/v1, kind: %s, metadata: {name: %s}, spec: {replicas: 2, %s selector: {matchLabels: {app: web}}, template: %s}}`, kind, name, map[string]string{"StatefulSet": "serviceName: web, podManagementPolicy: Parallel,"}[kind], template)
		}
		all = append(all, scenario{"two of a selector, " + kind, []step{webs(kind), second("two"), rollout(), scale(kind+" two", 1), rollout(), remove(kind+" two", background), rollout()}})
	}
	return all
}
