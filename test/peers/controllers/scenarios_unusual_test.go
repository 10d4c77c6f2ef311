package controllers

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// unusual are scenarios of what users do rarely: values at the edge, changes by hand of what
// controllers have made, and creations that admission refuses.
func unusual() []scenario {
	return slices.Concat(unusualStatefulSets(), unusualDeployments(), unusualDaemonSets(), refusals(), unusualCronJobs(),
		unusualAutoscalers(), unusualVolumes(), expansions(), unusualNodes(), spreadServices(),
		unusualBudgets(), unusualJobs(), unusualServices(), overlaps())
}

func unusualStatefulSets() (all []scenario) {
	const set = "StatefulSet web"
	web := func(more string) []step {
		return []step{create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 3, serviceName: web, selector: {matchLabels: {app: web}}, template: %s%s}}`, template, more), rollout()}
	}
	strategy := func(text string) step { return patch(set, "{spec: {updateStrategy: "+text+"}}") }
	partition := func(n int) step { return strategy(fmt.Sprintf("{rollingUpdate: {partition: %d}}", n)) }
	all = each("stateful set unusual", web(""), []operation{
		{"partition beyond the replicas", []step{partition(10), newImage(set, "2"), answer("kill", "web-1"), rollout(), scale(set, 5), rollout(), partition(0), rollout()}},
		{"partition in steps", []step{partition(2), newImage(set, "2"), rollout(), answer("kill", "web-0"), rollout(), partition(1), rollout(), partition(0), rollout()}},
		{"back from a partition", []step{partition(1), newImage(set, "2"), rollout(), newImage(set, "1"), rollout(), partition(0), rollout()}},
		{"back from an update that never gets ready", []step{newImage(set, "2"), answer("stop", "*"), answer("start", "*"), newImage(set, "1"), answer("kill", "web-2"), rollout()}},
		{"no replicas, and an update", []step{scale(set, 0), rollout(), newImage(set, "2"), scale(set, 2), rollout()}},
		{"on delete, and rolling again", []step{strategy("{type: OnDelete, rollingUpdate: null}"), newImage(set, "2"), answer("kill", "web-1"), rollout(), strategy("{type: RollingUpdate}"), rollout()}},
		{"another start ordinal", []step{patch(set, "{spec: {ordinals: {start: 1}}}"), rollout(), patch(set, "{spec: {ordinals: {start: 7}}}"), rollout(), patch(set, "{spec: {ordinals: null}}"), rollout()}},
		{"status by hand", []step{patch("StatefulSet/status web", `{status: {replicas: 99, readyReplicas: 98, currentRevision: bogus, observedGeneration: 50}}`), newImage(set, "2"), rollout()}},
		{"labels by hand", []step{patch("Pod web-1", `{metadata: {labels: {statefulset.kubernetes.io/pod-name: null, apps.kubernetes.io/pod-index: null}}}`), patch("Pod web-2", `{metadata: {labels: {controller-revision-hash: other}}}`), rollout()}},
		{"revision deleted", []step{removeAll("ControllerRevision"), rollout(), newImage(set, "2"), rollout()}},
		{"pod with a finalizer", []step{patch("Pod web-1", `{metadata: {finalizers: [example.com/hold]}}`), answer("kill", "web-1"), rollout(), scale(set, 1), rollout(), patch("Pod web-1", `{metadata: {finalizers: null}}`), rollout()}},
		{"history shortened", []step{newImage(set, "2"), rollout(), newImage(set, "3"), rollout(), patch(set, "{spec: {revisionHistoryLimit: 0}}"), rollout()}},
		{"available later", []step{patch(set, "{spec: {minReadySeconds: 3600}}"), newImage(set, "2"), rollout(), patch(set, "{spec: {minReadySeconds: 0}}"), rollout()}},
	})
	for _, policy := range []string{"OrderedReady", "Parallel"} {
		for _, most := range []string{"2", `"1%"`, `"100%"`} {
			begin := web(fmt.Sprintf(", podManagementPolicy: %s, updateStrategy: {rollingUpdate: {maxUnavailable: %s}}", policy, most))
			all = append(all, each("stateful set unusual, "+policy+" with at most "+most+" unavailable", begin, []operation{
				{"update", []step{newImage(set, "2"), answer("stop", "*"), rollout()}},
				{"update while a pod is not ready", []step{answer("unready", "web-0"), newImage(set, "2"), rollout(), answer("run", "web-0"), rollout()}},
				{"update that never gets ready", []step{newImage(set, "2"), answer("stop", "*"), answer("start", "*"), newImage(set, "3"), rollout()}},
			})...)
		}
	}
	claim := func(more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-web-0%s}, spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`, more)
	}
	deletes := ", persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Delete}, " + claims[1:len(claims)-1]
	held := step{what: "the claim is held", do: patch("PersistentVolumeClaim data-web-1", `{metadata: {finalizers: [example.com/hold]}}`).do}
	freed := step{what: "the claim is freed", do: patch("PersistentVolumeClaim data-web-1", `{metadata: {finalizers: null}}`).do}
	return append(all,
		scenario{"stateful set unusual, name of a pod taken", []step{
			create(`{apiVersion: v1, kind: Pod, metadata: {name: web-1}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]}}`), web("")[0], rollout(), answer("kill", "web-1"), rollout()}},
		scenario{"stateful set unusual, adopts a pod", []step{
			create(`{apiVersion: v1, kind: Pod, metadata: {name: web-1, labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]}}`), answer("run", "*"), web("")[0], rollout()}},
		scenario{"stateful set unusual, claim deleted while its pod is recreated", append(web(", "+claims[1:len(claims)-1]),
			held, remove("PersistentVolumeClaim data-web-1", background), answer("kill", "web-1"), rollout(), freed, rollout())},
		scenario{"stateful set unusual, claim deleted with its pod", append(web(deletes), held, scale(set, 1), rollout(), scale(set, 2), rollout())},
		scenario{"stateful set unusual, claims kept after all", append(web(deletes), patch(set, "{spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}}}"), rollout(), scale(set, 1), rollout(), remove(set, background), rollout())},
		scenario{"stateful set unusual, claim of another owner", append([]step{claim(", ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: " + absent + ", controller: true}], finalizers: [example.com/hold]")}, web(deletes)...)},
	)
}

func unusualDeployments() (all []scenario) {
	const web = "Deployment web"
	begin := []step{webs("Deployment"), rollout()}
	return each("deployment unusual", begin, []operation{
		{"all at once", []step{patch(web, `{spec: {strategy: {rollingUpdate: {maxSurge: "100%", maxUnavailable: "100%"}}}}`), newImage(web, "2"), rollout(), newImage(web, "1"), rollout()}},
		{"no replicas, and an update", []step{scale(web, 0), rollout(), newImage(web, "2"), rollout(), scale(web, 2), rollout()}},
		{"replica set deleted", []step{remove("ReplicaSet web~1", background), rollout()}},
		{"replica set orphaned", []step{remove("ReplicaSet web~1", orphan), rollout()}},
		{"replica set scaled", []step{patchSet("web~1", `{spec: {replicas: 5}}`), rollout()}},
		{"old replica set scaled", []step{newImage(web, "2"), rollout(), patchSet("web~1", `{spec: {replicas: 2}}`), rollout()}},
		{"revision by hand", []step{patch(web, `{metadata: {annotations: {deployment.kubernetes.io/revision: "70"}}}`), rollout(), newImage(web, "2"), rollout()}},
		{"status by hand", []step{patch("Deployment/status web", `{status: {replicas: 99, availableReplicas: 98, observedGeneration: 50, conditions: null, collisionCount: 3}}`), rollout(), newImage(web, "2"), rollout()}},
		{"recreated in an update", []step{newImage(web, "2"), answer("start", "web~2*"), patch(web, `{spec: {strategy: {type: Recreate, rollingUpdate: null}}}`), rollout()}},
		{"recreated with a pod that does not end", []step{patch(web, `{spec: {strategy: {type: Recreate, rollingUpdate: null}}}`), newImage(web, "2"), answer("fail", "web~1~1"), rollout()}},
		{"paused at its deadline", []step{patch(web, "{spec: {progressDeadlineSeconds: 2, paused: true}}"), newImage(web, "2"), rollout(), patch(web, "{spec: {paused: null}}"), answer("stop", "*"), reaches(web, "Progressing?", "False"), patch(web, "{spec: {paused: true}}"), patch(web, "{spec: {paused: null}}"), rollout()}},
		{"back after its deadline", []step{patch(web, "{spec: {progressDeadlineSeconds: 2}}"), newImage(web, "2"), reaches(web, "Progressing?", "False"), newImage(web, "1"), rollout()}},
		{"history shortened", []step{newImage(web, "2"), rollout(), newImage(web, "3"), rollout(), patch(web, "{spec: {revisionHistoryLimit: 0}}"), rollout()}},
		{"pods with a finalizer", []step{patchPod("web~1~1", `{metadata: {finalizers: [example.com/hold]}}`), scale(web, 0), rollout(), newImage(web, "2"), scale(web, 1), rollout()}},
	})
}

// patchSet is patch for a replica set with the name under which it is compared.
func patchSet(name, text string) step { return patch("ReplicaSet "+name, text) }

func unusualDaemonSets() (all []scenario) {
	const set = "DaemonSet web"
	node := func(name, more string) []step {
		return []step{
			create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-%s, labels: {scenario: PLACE, topology.kubernetes.io/zone: PLACE}}, spec: {%s}}`, name, more),
			patch("Node/status PLACE-"+name, `{status: {allocatable: {cpu: "100", memory: 100Gi, pods: "100"}, capacity: {cpu: "100", memory: 100Gi, pods: "100"}, conditions: [{type: Ready, status: "True", reason: Test}]}}`),
		}
	}
	web := func(strategy, more string) step {
		return create(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: web}, spec: {updateStrategy: {rollingUpdate: %s}, selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: {nodeSelector: {scenario: PLACE}, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]%s}}}}`, strategy, more)
	}
	begin := slices.Concat(node("a", ""), node("b", ""), []step{web("{maxUnavailable: 2}", ""), rollout()})
	all = each("daemon set unusual", begin, []operation{
		{"node created", append(node("c", ""), rollout())},
		{"pods finish", []step{answer("finish", "*"), rollout()}},
		{"back in an update", []step{newImage(set, "2"), answer("stop", "*"), answer("start", "*"), newImage(set, "1"), rollout()}},
		{"update that never gets ready", []step{newImage(set, "2"), answer("stop", "*"), answer("start", "*"), newImage(set, "3"), rollout()}},
		{"status by hand", []step{patch("DaemonSet/status web", `{status: {currentNumberScheduled: 99, numberReady: 98, observedGeneration: 50}}`), newImage(set, "2"), rollout()}},
		{"revisions deleted", []step{removeAll("ControllerRevision"), rollout(), newImage(set, "2"), rollout()}},
		{"released and adopted", []step{patchPod("web@PLACE-a~1", `{metadata: {labels: {app: other}}}`), rollout(), patchPod("web@PLACE-a~1", `{metadata: {labels: {app: web}}}`), rollout()}},
		{"history shortened", []step{newImage(set, "2"), rollout(), newImage(set, "3"), rollout(), patch(set, "{spec: {revisionHistoryLimit: 0}}"), rollout()}},
		{"available later", []step{patch(set, "{spec: {minReadySeconds: 3600}}"), newImage(set, "2"), rollout(), patch(set, "{spec: {minReadySeconds: 0}}"), rollout()}},
		{"pods with a finalizer", []step{patchPod("web@PLACE-a~1", `{metadata: {finalizers: [example.com/hold]}}`), newImage(set, "2"), rollout()}},
		{"surge that never gets ready", []step{patch(set, "{spec: {updateStrategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}}}"), newImage(set, "2"), answer("start", "*"), newImage(set, "3"), rollout()}},
		{"surge, and back", []step{patch(set, "{spec: {updateStrategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 0}}}}"), newImage(set, "2"), answer("start", "*"), newImage(set, "1"), rollout()}},
		{"surge beside pods that are not ready", []step{answer("unready", "*"), patch(set, `{spec: {updateStrategy: {rollingUpdate: {maxSurge: "50%%", maxUnavailable: 0}}}}`), newImage(set, "2"), rollout()}},
		{"node not ready", []step{patch("Node/status PLACE-a", `{status: {conditions: [{type: Ready, status: "False", reason: Test}]}}`), answer("kill", "*"), rollout()}},
	})
	for name, more := range map[string]string{
		"a node by name":         ", nodeName: PLACE-a",
		"an affinity":            ", affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [PLACE-b]}]}]}, preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: x, operator: Exists}]}}]}}",
		"the host's network":     ", hostNetwork: true",
		"its own tolerations":    ", tolerations: [{key: x, operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]",
		"a priority and ports":   ", priorityClassName: system-node-critical, containers: [{name: c, image: c, ports: [{containerPort: 80, hostPort: 80}]}]",
		"more than a node's cpu": ", containers: [{name: c, image: c, resources: {requests: {cpu: 1k}}}]",
	} {
		all = append(all, scenario{"daemon set unusual, with " + name, slices.Concat(node("a", ""), node("b", "unschedulable: true"), node("c", "taints: [{key: x, effect: NoSchedule}, {key: node.kubernetes.io/network-unavailable, effect: NoSchedule}]"),
			[]step{web("{maxUnavailable: 3}", more), rollout(), newImage(set, "2"), rollout()})})
	}
	return all
}

// refusals are scenarios of pods that admission refuses, and then accepts.
func refusals() (all []scenario) {
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"} {
		workload := webs(kind)
		if kind == "Job" {
			workload = create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {parallelism: 3, completions: 3, template: {metadata: {labels: {app: web}}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}}}`)
		}
		all = append(all,
			scenario{"refused by a quota, " + kind, []step{
				create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {pods: "0"}}}`), workload,
				patch("ResourceQuota few", `{spec: {hard: {pods: "10"}}}`), rollout(),
			}},
			scenario{"refused by a limit range, " + kind, []step{
				create(`{apiVersion: v1, kind: LimitRange, metadata: {name: much}, spec: {limits: [{type: Container, min: {cpu: "1"}, default: {cpu: 100m}, defaultRequest: {cpu: 100m}}]}}`), workload,
				remove("LimitRange much", background), rollout(),
			}},
			scenario{"refused by a webhook, " + kind, []step{
				create(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: PLACE-w}, webhooks: [{name: pods.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail,
					namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: PLACE}}, clientConfig: {url: "https://127.0.0.1:1/"}, rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}]}`), workload,
				remove("ValidatingWebhookConfiguration PLACE-w", background), rollout(),
			}},
		)
	}
	return all
}

func unusualCronJobs() (all []scenario) {
	const cron = "CronJob cron"
	text := func(schedule, more string) step {
		return create(`{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron}, spec: {schedule: "%s", %s, jobTemplate: {metadata: {labels: {a: b}}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}}}}}`, schedule, more)
	}
	missed := patch("CronJob/status cron", `{status: {lastScheduleTime: "2023-01-01T00:00:00Z"}}`)
	for _, schedule := range []string{"0 0 30 2 *", "@every 8760h", "@yearly", "0 0 1 1 ?"} {
		all = append(all, scenario{"cron job unusual, " + schedule, []step{text(schedule, "suspend: false"), missed, answer("run", "*"), answer("finish", "*")}})
	}
	begin := []step{text("0 0 29 2 *", "concurrencyPolicy: Forbid"), missed, answer("run", "*")}
	all = append(all, each("cron job unusual", begin, []operation{
		{"job by hand", []step{{what: "create a job by hand", do: jobOf("cron")}, answer("finish", "*")}},
		{"suspended with a job", []step{patch(cron, `{spec: {suspend: true}}`), answer("finish", "*"), patch(cron, `{spec: {suspend: false}}`)}},
		{"history kept no longer", []step{answer("finish", "*"), patch(cron, `{spec: {successfulJobsHistoryLimit: 0}}`)}},
		{"deleted job", []step{remove("Job cron~1", background), rollout()}},
		{"status by hand", []step{patch("CronJob/status cron", `{status: {active: [{kind: Job, name: other, namespace: PLACE, uid: `+absent+`}]}}`)}},
	})...)
	return append(all,
		scenario{"cron job unusual, quota", []step{create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {count/jobs.batch: "0"}}}`), text("0 0 29 2 *", "suspend: false"), missed, patch("ResourceQuota few", `{spec: {hard: {count/jobs.batch: "10"}}}`), reaches(cron, "status.lastScheduleTime", "2024-02-29T00:00:00Z")}},
	)
}

// jobOf creates a job of a cron job as kubectl create job --from does.
func jobOf(name string) func(ctx context.Context, s *side) error {
	return func(ctx context.Context, s *side) error {
		owner, err := s.resource("CronJob").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		spec, _, err := unstructured.NestedMap(owner.Object, "spec", "jobTemplate", "spec")
		if err != nil {
			return err
		}
		job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": spec}}
		job.SetName("by-hand")
		job.SetAnnotations(map[string]string{"cronjob.kubernetes.io/instantiate": "manual"})
		job.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		_, err = s.resource("Job").Create(ctx, job, metav1.CreateOptions{})
		return err
	}
}

func unusualAutoscalers() (all []scenario) {
	autoscaler := func(name, target, limits string) step {
		return create(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: %s}, spec: {scaleTargetRef: %s, %s, metrics: [{type: External, external: {metric: {name: absent}, target: {type: Value, value: "1"}}}]}}`, name, target, limits)
	}
	for kind, version := range map[string]string{"StatefulSet": "apps/v1", "ReplicaSet": "apps/v1", "ReplicationController": "v1"} {
		target := fmt.Sprintf("{apiVersion: %s, kind: %s, name: web}", version, kind)
		all = append(all, scenario{"autoscaler unusual, of a " + kind, []step{webs(kind), rollout(), autoscaler("web", target, "minReplicas: 4, maxReplicas: 5"), rollout(), patch("HorizontalPodAutoscaler web", "{spec: {minReplicas: 1, maxReplicas: 2}}"), rollout()}})
	}
	const web = "{apiVersion: apps/v1, kind: Deployment, name: web}"
	return append(all,
		scenario{"autoscaler unusual, two of a target", []step{webs("Deployment"), rollout(), autoscaler("a", web, "minReplicas: 3, maxReplicas: 5"), autoscaler("b", web, "minReplicas: 3, maxReplicas: 5"), remove("HorizontalPodAutoscaler b", background)}},
		scenario{"autoscaler unusual, target created later", []step{autoscaler("web", web, "minReplicas: 4, maxReplicas: 5"), webs("Deployment"), rollout(), remove("Deployment web", background), rollout()}},
		scenario{"autoscaler unusual, of another version", []step{webs("Deployment"), autoscaler("web", "{apiVersion: apps/v1beta1, kind: Deployment, name: web}", "minReplicas: 4, maxReplicas: 5"), rollout()}},
		scenario{"autoscaler unusual, status by hand", []step{webs("Deployment"), rollout(), autoscaler("web", web, "minReplicas: 1, maxReplicas: 5"), patch("HorizontalPodAutoscaler/status web", `{status: {currentReplicas: 50, desiredReplicas: 51, conditions: null}}`)}},
	)
}
