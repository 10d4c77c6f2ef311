package controllers

import (
	"fmt"
	"slices"
)

func unusualVolumes() (all []scenario) {
	volume := func(name, more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-%s}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}, hostPath: {path: /x}%s}}`, name, more)
	}
	claim := func(name, more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}%s}}`, name, more)
	}
	pod := func(more string) step {
		return create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]%s, volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]}}`, more)
	}
	const pv, pvc = "PersistentVolume PLACE-v", "PersistentVolumeClaim a"
	bound := []step{volume("v", ""), claim("a", "")}
	all = each("volume unusual", bound, []operation{
		{"claim reference removed", []step{patch(pv, "{spec: {claimRef: null}}")}},
		{"claim reference changed", []step{patch(pv, "{spec: {claimRef: {namespace: other, name: other, uid: "+absent+"}}}")}},
		{"claim reference without UID", []step{patch(pv, "{spec: {claimRef: {uid: null}}}")}},
		{"annotations of the claim removed", []step{patch(pvc, "{metadata: {annotations: null}}"), patch(pv, "{metadata: {annotations: null}}")}},
		{"phases by hand", []step{patch("PersistentVolumeClaim/status a", "{status: {phase: Pending}}"), patch("PersistentVolume/status PLACE-v", "{status: {phase: Failed, message: x}}")}},
		{"policy changed after the release", []step{remove(pvc, background), patch(pv, "{spec: {persistentVolumeReclaimPolicy: Delete}}"), patch(pv, "{spec: {persistentVolumeReclaimPolicy: Retain}}")}},
		{"released, and deleted", []step{remove(pvc, background), remove(pv, background)}},
		{"deleted with a finalizer", []step{patch(pv, "{metadata: {finalizers: [kubernetes.io/pv-protection, example.com/hold]}}"), remove(pv, background), remove(pvc, background), claim("b", ""), patch(pv, "{metadata: {finalizers: null}}")}},
		{"claim deleted with a finalizer", []step{patch(pvc, "{metadata: {finalizers: [kubernetes.io/pvc-protection, example.com/hold]}}"), remove(pvc, background), claim("b", ""), patch(pvc, "{metadata: {finalizers: null}}")}},
		{"protection removed by hand", []step{patch(pvc, "{metadata: {finalizers: null}}"), patch(pv, "{metadata: {finalizers: null}}"), patch(pvc, "{metadata: {labels: {a: b}}}")}},
		{"claim of a pod without a node deleted", []step{pod(""), remove(pvc, background), remove("Pod user", background)}},
		{"claim of a gated pod deleted", []step{pod(", schedulingGates: [{name: example.com/gate}]"), remove(pvc, background), remove("Pod user", background)}},
		{"volume made again", []step{patch(pv, "{metadata: {finalizers: null}}"), remove(pv, background), patch(pv, "{metadata: {finalizers: null}}"), volume("v", ""), volume("w", "")}},
	})
	provisioned := func(more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-v, annotations: {pv.kubernetes.io/provisioned-by: PLACE-d}}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}, csi: {driver: PLACE-d, volumeHandle: h}%s}}`, more)
	}
	class := func(name, more string) step {
		return create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: PLACE-%s%s}, provisioner: PLACE-d}`, name, more)
	}
	for _, policy := range []string{"Retain", "Delete"} {
		all = append(all, each("volume unusual, of a provisioner, "+policy, []step{class("c", ""), claim("a", "")}, []operation{
			{"bound, released and deleted", []step{provisioned(", persistentVolumeReclaimPolicy: " + policy + ", claimRef: {namespace: PLACE, name: a}"), remove(pvc, background), remove(pv, background)}},
			{"of a claim that has gone", []step{remove(pvc, background), provisioned(", persistentVolumeReclaimPolicy: " + policy + ", claimRef: {namespace: PLACE, name: a, uid: " + absent + "}")}},
			{"of a claim that is bound", []step{volume("w", ""), provisioned(", persistentVolumeReclaimPolicy: " + policy + ", claimRef: {namespace: PLACE, name: a}"), remove(pvc, background)}},
			{"failed", []step{provisioned(", persistentVolumeReclaimPolicy: " + policy + ", claimRef: {namespace: PLACE, name: a}"), remove(pvc, background), patch("PersistentVolume/status PLACE-v", "{status: {phase: Failed, message: no disk}}"), patch(pv, "{spec: {persistentVolumeReclaimPolicy: Retain}}")}},
		})...)
	}
	without := create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`)
	empty := create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: b}, spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`)
	all = append(all,
		scenario{"volume unusual, default class set and changed", []step{
			without, empty, class("c", ""), patch("StorageClass PLACE-c", `{metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}}}`),
			class("e", `, annotations: {storageclass.kubernetes.io/is-default-class: "true"}`), patch("StorageClass PLACE-c", `{metadata: {annotations: null}}`), remove("StorageClass PLACE-e", background),
		}},
		scenario{"volume unusual, by name of another size, class and mode", []step{
			volume("v", ""), claim("a", ", volumeName: PLACE-v, volumeMode: Block"),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: b}, spec: {storageClassName: PLACE-c, volumeName: PLACE-v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Gi}}}}`),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: other, volumeName: PLACE-v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: d}, spec: {storageClassName: PLACE-c, volumeName: PLACE-v, accessModes: [ReadWriteMany], resources: {requests: {storage: 2Gi}}}}`),
			claim("e", ", volumeName: PLACE-v"),
		}},
		scenario{"volume unusual, reserved for a claim that does not fit", []step{volume("v", ", claimRef: {namespace: PLACE, name: a}"), claim("a", ", selector: {matchLabels: {no: such}}"), claim("b", "")}},
		scenario{"volume unusual, reserved for a claim of another mode", []step{volume("v", ", claimRef: {namespace: PLACE, name: a}"), claim("a", ", volumeMode: Block")}},
		scenario{"volume unusual, class created later", []step{claim("a", ""), class("c", "")}},
		scenario{"volume unusual, class deleted", []step{class("c", ""), claim("a", ""), remove("StorageClass PLACE-c", background), patch(pvc, "{metadata: {labels: {a: b}}}")}},
		scenario{"volume unusual, many of a pod", []step{volume("v", ""), claim("a", ""), volume("w", ""), claim("b", ""),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: a}}, {name: w, persistentVolumeClaim: {claimName: b}}, {name: x, persistentVolumeClaim: {claimName: absent}},
				{name: e, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}, {name: f, ephemeral: {volumeClaimTemplate: {metadata: {annotations: {a: b}}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}}`),
			answer("run", "user"), remove(pvc, background), remove("PersistentVolumeClaim user-e", background), answer("kill", "user"), answer("stop", "user")}},
		scenario{"volume unusual, ephemeral of a pod that finishes", []step{
			create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], volumes: [{name: e, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}}`),
			answer("finish", "user"), remove("PersistentVolumeClaim user-e", background)}},
		scenario{"volume unusual, ephemeral refused by a quota", []step{
			create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, spec: {hard: {persistentvolumeclaims: "0"}}}`),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], volumes: [{name: e, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]}}`),
			patch("ResourceQuota few", `{spec: {hard: {persistentvolumeclaims: "5"}}}`)}},
	)
	return all
}

// expansions are scenarios of claims that request more.
func expansions() (all []scenario) {
	for name, text := range map[string]string{
		"CSI": "csi: {driver: PLACE-d, volumeHandle: h}", "in-tree": "hostPath: {path: /x}",
	} {
		all = append(all, scenario{"volume unusual, expanded, " + name, []step{
			create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: PLACE-c}, provisioner: PLACE-d, allowVolumeExpansion: true}`),
			create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-v, annotations: {pv.kubernetes.io/provisioned-by: PLACE-d}}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}, %s}}`, text),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`),
			patch("PersistentVolumeClaim a", `{spec: {resources: {requests: {storage: 5Gi}}}}`),
			patch("PersistentVolumeClaim a", `{spec: {resources: {requests: {storage: 9Gi}}}}`),
			patch("StorageClass PLACE-c", `{allowVolumeExpansion: false}`),
			patch("PersistentVolumeClaim a", `{spec: {resources: {requests: {storage: 10Gi}}}}`),
			patch("PersistentVolume PLACE-v", `{spec: {capacity: {storage: 9Gi}}}`),
			patch("PersistentVolumeClaim/status a", `{status: {capacity: {storage: 9Gi}}}`),
		}})
	}
	return all
}

func unusualNodes() (all []scenario) {
	node := []step{
		create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-a, labels: {topology.kubernetes.io/zone: PLACE, kubernetes.io/os: linux, kubernetes.io/arch: arm64}}}`),
		patch("Node/status PLACE-a", `{status: {conditions: [{type: Ready, status: "True", reason: Test}]}}`),
	}
	pod := func(name, tolerations string) step {
		return create(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: PLACE-a, terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], tolerations: %s}}`, name, tolerations)
	}
	taints := func(list string) step { return patch("Node PLACE-a", "{spec: {taints: "+list+"}}") }
	ready := func(status, more string) step {
		return patch("Node/status PLACE-a", fmt.Sprintf(`{status: {conditions: [{type: Ready, status: "%s", reason: Test}%s]}}`, status, more))
	}
	for name, steps := range map[string][]step{
		"pod created on a tainted node":   {taints("[{key: x, effect: NoExecute}]"), pod("p", "[]"), pod("q", "[{key: x, operator: Exists, tolerationSeconds: 3, effect: NoExecute}]"), answer("run", "*"), rollout()},
		"shortest of several tolerations": {pod("p", "[{key: x, operator: Exists, tolerationSeconds: 500, effect: NoExecute}, {operator: Exists, effect: NoExecute, tolerationSeconds: 2}]"), answer("run", "*"), taints("[{key: x, effect: NoExecute}]"), rollout()},
		"negative seconds":                {pod("p", "[{key: x, operator: Exists, tolerationSeconds: -5, effect: NoExecute}]"), answer("run", "*"), taints("[{key: x, effect: NoExecute}]"), rollout()},
		"one of two taints tolerated":     {pod("p", "[{key: x, operator: Exists}]"), answer("run", "*"), taints("[{key: x, effect: NoExecute}, {key: 'y', effect: NoExecute}]"), rollout()},
		"taint changes its value":         {pod("p", "[{key: x, value: a, effect: NoExecute}]"), answer("run", "*"), taints("[{key: x, value: a, effect: NoExecute}]"), taints("[{key: x, value: b, effect: NoExecute}]"), rollout()},
		"pod that has ended":              {pod("p", "[]"), answer("finish", "*"), taints("[{key: x, effect: NoExecute}]"), rollout()},
		"pod with a finalizer":            {pod("p", "[]"), answer("run", "*"), patch("Pod p", "{metadata: {finalizers: [example.com/hold]}}"), taints("[{key: x, effect: NoExecute}]"), rollout(), patch("Pod p", "{metadata: {finalizers: null}}")},
		"taints removed by hand":          {ready("False", `, {type: DiskPressure, status: "True", reason: Test}`), taints("null"), ready("True", "")},
		"taints of conditions by hand":    {taints("[{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}, {key: node.kubernetes.io/memory-pressure, effect: NoExecute}, {key: node.kubernetes.io/unschedulable, effect: NoSchedule}]"), ready("True", "")},
		"cordoned by a taint only":        {taints("[{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]"), patch("Node PLACE-a", "{spec: {unschedulable: true}}"), taints("null"), patch("Node PLACE-a", "{spec: {unschedulable: null}}")},
		"condition that has gone":         {ready("True", `, {type: MemoryPressure, status: "True", reason: Test}`), ready("True", "")},
		"beta labels by hand":             {patch("Node PLACE-a", "{metadata: {labels: {beta.kubernetes.io/os: windows, kubernetes.io/arch: amd64}}}"), patch("Node PLACE-a", "{metadata: {labels: {kubernetes.io/os: null}}}")},
		"annotation ttl by hand":          {patch("Node PLACE-a", `{metadata: {annotations: {node.alpha.kubernetes.io/ttl: "300"}}}`), patch("Node PLACE-a", `{metadata: {annotations: {node.alpha.kubernetes.io/ttl: x}}}`), patch("Node PLACE-a", `{metadata: {annotations: null}}`)},
		"external cloud provider":         {taints("[{key: node.cloudprovider.kubernetes.io/uninitialized, value: 'true', effect: NoSchedule}]"), pod("p", "[]"), answer("run", "*"), taints("[{key: node.cloudprovider.kubernetes.io/shutdown, effect: NoSchedule}]")},
	} {
		all = append(all, scenario{"node unusual, " + name, slices.Concat(node, steps)})
	}
	return all
}

// spreadServices are scenarios of services whose endpoints have hints.
func spreadServices() (all []scenario) {
	node := func(name string) []step {
		return []step{
			create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-%s, labels: {scenario: PLACE, topology.kubernetes.io/zone: PLACE-%s}}}`, name, name),
			patch("Node/status PLACE-"+name, `{status: {allocatable: {cpu: "4", memory: 4Gi, pods: "10"}, conditions: [{type: Ready, status: "True", reason: Test}]}}`),
		}
	}
	for _, distribution := range []string{"PreferClose", "PreferSameZone", "PreferSameNode"} {
		pod := func(name, node string) step {
			return create(`{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {app: web}}, spec: {nodeName: PLACE-%s, terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}]}}`, name, node)
		}
		all = append(all, scenario{"service unusual, " + distribution, slices.Concat(node("a"), node("b"), []step{
			create(`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {trafficDistribution: %s, selector: {app: web}, ports: [{port: 80}]}}`, distribution),
			pod("a", "a"), answer("run", "a"), pod("b", "b"), answer("run", "b"), answer("unready", "a"), patch("Service web", "{spec: {trafficDistribution: null}}"),
			answer("kill", "*"), answer("stop", "*"),
		})})
	}
	return all
}
