package controllers

import "fmt"

// webs creates a workload of three pods.
func webs(kind string) step {
	switch kind {
	case "Pods":
		return create(`{apiVersion: v1, kind: Pod, metadata: {name: bare, labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}`)
	case "ReplicationController":
		return create(`{apiVersion: v1, kind: ReplicationController, metadata: {name: web}, spec: {replicas: 3, selector: {app: web}, template: %s}}`, template)
	case "StatefulSet":
		return create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 3, podManagementPolicy: Parallel, serviceName: web, selector: {matchLabels: {app: web}}, template: %s}}`, template)
	default:
		return create(`{apiVersion: apps/v1, kind: %s, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: %s}}`, kind, template)
	}
}

func disruptionBudgets() (all []scenario) {
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Pods"} {
		for _, limit := range []string{"minAvailable: 2", "maxUnavailable: 1", `minAvailable: "50%"`, `maxUnavailable: "34%"`, "minAvailable: 0", "maxUnavailable: 0"} {
			all = append(all, scenario{"disruption budget " + limit + " of " + kind, []step{
				webs(kind),
				create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {%s, selector: {matchLabels: {app: web}}}}`, limit),
				rollout(), evict("*1"), evict("*2"), rollout(), answer("unready", "*3"), rollout(),
				patch("PodDisruptionBudget web", "{spec: {selector: {matchLabels: {app: other}}}}"),
			}})
		}
	}
	for _, policy := range []string{"IfHealthyBudget", "AlwaysAllow"} {
		all = append(all, scenario{"disruption budget, unhealthy pods " + policy, []step{
			webs("Deployment"), create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 2, unhealthyPodEvictionPolicy: %s, selector: {matchLabels: {app: web}}}}`, policy),
			answer("start", "*"), evict("*1"), rollout(), scale("Deployment web", 5), rollout(),
		}})
	}
	return append(all, scenario{"disruption budgets, two of a pod", []step{
		webs("Deployment"), rollout(),
		create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: one}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}`),
		create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: two}, spec: {minAvailable: 1, selector: {}}}`), evict("*1"),
	}})
}

func autoscalers() (all []scenario) {
	for _, target := range []string{"{apiVersion: apps/v1, kind: Deployment, name: web}", "{apiVersion: apps/v1, kind: Deployment, name: missing}", "{apiVersion: apps/v1, kind: DaemonSet, name: web}", "{apiVersion: example.com/v1, kind: Unknown, name: web}"} {
		for _, limits := range []string{"minReplicas: 4, maxReplicas: 10", "minReplicas: 1, maxReplicas: 2", "minReplicas: 1, maxReplicas: 10"} {
			all = append(all, scenario{"autoscaler without metrics, " + limits + " of " + target, []step{
				webs("Deployment"), rollout(),
				create(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {scaleTargetRef: %s, %s, metrics: [{type: External, external: {metric: {name: absent}, target: {type: Value, value: "1"}}}]}}`, target, limits),
				rollout(),
			}})
		}
	}
	all = append(all, scenario{"autoscaler of a disabled target", []step{
		webs("Deployment"), rollout(), scale("Deployment web", 0), rollout(),
		create(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 3}}`), rollout(),
	}})
	return all
}

func services() (all []scenario) {
	pods := []string{"run", "start", "bind", "finish", "kill"}
	for name, spec := range map[string]string{
		"plain":               `{selector: {app: web}, ports: [{port: 80}]}`,
		"two ports":           `{selector: {app: web}, ports: [{name: a, port: 80, targetPort: 8080}, {name: b, port: 53, protocol: UDP}]}`,
		"named port":          `{selector: {app: web}, ports: [{name: a, port: 80, targetPort: http}]}`,
		"headless":            `{clusterIP: None, selector: {app: web}, ports: [{port: 80}]}`,
		"headless, no ports":  `{clusterIP: None, selector: {app: web}}`,
		"not ready addresses": `{clusterIP: None, publishNotReadyAddresses: true, selector: {app: web}, ports: [{port: 80}]}`,
		"no selector":         `{ports: [{port: 80}]}`,
		"external name":       `{type: ExternalName, externalName: example.com, selector: {app: web}}`,
		"app protocol":        `{selector: {app: web}, ports: [{port: 80, appProtocol: kubernetes.io/h2c}]}`,
	} {
		begin := []step{
			create(`{apiVersion: v1, kind: Service, metadata: {name: web, labels: {l: m}, annotations: {n: o}}, spec: %s}`, spec),
			create(`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web}, spec: {replicas: 2, serviceName: web, podManagementPolicy: Parallel, selector: {matchLabels: {app: web}},
				template: {metadata: {labels: {app: web}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1", ports: [{name: http, containerPort: 8080}]}]}}}}`),
		}
		var operations []operation
		for _, how := range pods {
			operations = append(operations, operation{how, []step{rollout(), answer(how, "web-0"), answer(how, "web-1"), rollout()}})
		}
		operations = append(operations,
			operation{"not ready", []step{answer("start", "web-0"), answer("run", "web-1"), answer("unready", "web-1")}},
			operation{"changes", []step{rollout(), patch("Service web", `{metadata: {labels: {l: null, p: q}}, spec: {selector: {app: other}}}`), patch("Pod web-0", `{metadata: {labels: {app: other}}}`), remove("Service web", background)}},
		)
		all = append(all, each("service "+name, begin, operations)...)
	}
	byHand := func(addresses string) step {
		return create(`{apiVersion: v1, kind: Endpoints, metadata: {name: web, labels: {a: b}}, subsets: %s}`, addresses)
	}
	noSelector := create(`{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}`)
	for name, subsets := range map[string]string{
		"two addresses":   `[{addresses: [{ip: 192.0.2.1}, {ip: 192.0.2.2}], ports: [{port: 80}]}]`,
		"not ready":       `[{addresses: [{ip: 192.0.2.1}], notReadyAddresses: [{ip: 192.0.2.2}], ports: [{name: a, port: 80}, {name: b, port: 81}]}]`,
		"families":        `[{addresses: [{ip: 192.0.2.1}, {ip: "2001:db8::1"}], ports: [{port: 80}]}]`,
		"different ports": `[{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}, {addresses: [{ip: 192.0.2.2}], ports: [{port: 81}]}]`,
	} {
		all = append(all, each("mirrored endpoints, "+name, nil, []operation{
			{"endpoints first", []step{byHand(subsets), noSelector, patch("Endpoints web", `{subsets: [{addresses: [{ip: 192.0.2.9}], ports: [{port: 80}]}]}`), remove("Endpoints web", background)}},
			{"service first", []step{noSelector, byHand(subsets), patch("Service web", `{spec: {selector: {app: web}}}`), patch("Service web", `{spec: {selector: null}}`), remove("Service web", background)}},
			{"not to be mirrored", []step{noSelector, byHand(subsets), patch("Endpoints web", `{metadata: {labels: {endpointslice.kubernetes.io/skip-mirror: "true"}}}`), patch("Endpoints web", `{metadata: {labels: {endpointslice.kubernetes.io/skip-mirror: null}}}`)}},
		})...)
	}
	return all
}

func quotas() (all []scenario) {
	for name, hard := range map[string]string{
		"objects":     `{pods: "10", services: "5", configmaps: "10", secrets: "10", persistentvolumeclaims: "3", replicationcontrollers: "2", resourcequotas: "5"}`,
		"resources":   `{requests.cpu: "2", requests.memory: 1Gi, limits.cpu: "4", limits.memory: 2Gi, requests.storage: 10Gi}`,
		"counts":      `{count/deployments.apps: "2", count/replicasets.apps: "3", count/jobs.batch: "1", count/pods: "10", count/endpointslices.discovery.k8s.io: "5"}`,
		"node ports":  `{services.nodeports: "3", services.loadbalancers: "2"}`,
		"claim class": `{none.storageclass.storage.k8s.io/requests.storage: 5Gi, none.storageclass.storage.k8s.io/persistentvolumeclaims: "3"}`,
	} {
		all = append(all, scenario{"quota of " + name, []step{
			create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: %s}}`, hard),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c, resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 128Mi}}}]}}`),
			create(`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {type: LoadBalancer, ports: [{port: 80}]}}`),
			create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p}, spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`),
			create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, selector: {matchLabels: {app: web}}, template: %s}}`, template),
			answer("run", "a"), answer("finish", "a"),
			patch("ResourceQuota q", `{spec: {hard: {pods: "1", configmaps: "1"}}}`),
			remove("Service s", background), removeAll("Pod"), rollout(), remove("PersistentVolumeClaim p", background), remove("Deployment web", background),
		}})
	}
	for _, scope := range []string{"BestEffort", "NotBestEffort", "Terminating", "NotTerminating"} {
		all = append(all, scenario{"quota with the scope " + scope, []step{
			create(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {scopes: [%s], hard: {pods: "3"}}}`, scope),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: c}]}}`),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {activeDeadlineSeconds: 1000, containers: [{name: c, image: c, resources: {requests: {cpu: 100m}}}]}}`),
			patch("Pod a", `{spec: {activeDeadlineSeconds: 1000}}`), removeAll("Pod"), rollout(),
		}})
	}
	return all
}

func namespaces() (all []scenario) {
	config := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`)
	for name, steps := range map[string][]step{
		"with a workload":     {webs("Deployment"), rollout()},
		"with a finalizer":    {config},
		"with running pods":   {webs("StatefulSet"), answer("run", "*")},
		"with two holders":    {config, create(`{apiVersion: v1, kind: Secret, metadata: {name: held, finalizers: [example.com/hold, example.com/too]}}`)},
		"with a budget":       {webs("Deployment"), rollout(), create(`{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: b}, spec: {minAvailable: 3, selector: {}}}`)},
		"with bound claims":   {create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p}, spec: {storageClassName: none, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`)},
		"with a pod of a job": {create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}}`), answer("run", "*")},
	} {
		s := scenario{"namespace " + name, append(steps, remove("Namespace PLACE", background), rollout())}
		if name == "with a finalizer" || name == "with two holders" {
			s.steps = append(s.steps, patch("ConfigMap held", "{metadata: {finalizers: null}}"))
		}
		if name == "with two holders" {
			s.steps = append(s.steps, patch("Secret held", "{metadata: {finalizers: null}}"))
		}
		s.steps = append(s.steps, reaches("Namespace PLACE", "", "gone"))
		all = append(all, s)
	}
	return all
}

// owners are scenarios of the garbage collector.
func owners() (all []scenario) {
	owner := create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}`)
	dependent := func(name, reference, more string) step {
		return step{what: "create dependent " + name + " " + reference, do: ownedBy(name, reference, more)}
	}
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		for name, steps := range map[string][]step{
			"one":            {dependent("a", "owner", "")},
			"blocking":       {dependent("a", "owner blocking", "")},
			"held":           {dependent("a", "owner blocking", "held")},
			"two owners":     {create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}`), dependent("a", "owner other", "")},
			"chain":          {dependent("a", "owner blocking", ""), dependent("b", "a blocking", ""), dependent("c", "b blocking", "")},
			"held chain":     {dependent("a", "owner blocking", ""), dependent("b", "a blocking", "held")},
			"missing owner":  {dependent("a", "owner missing", "")},
			"held not block": {dependent("a", "owner", "held")},
		} {
			steps = append([]step{owner}, steps...)
			steps = append(steps, step{what: "delete owner " + policy, do: removing("owner", policy)}, step{what: "release", do: releaseAll})
			all = append(all, scenario{"garbage collector, " + policy + ", " + name, steps})
		}
	}
	all = append(all,
		scenario{"garbage collector, absent owner", []step{dependent("a", "missing", ""), dependent("b", "missing blocking", "held"), {what: "release", do: releaseAll}}},
		scenario{"garbage collector, owner with another UID", []step{owner, dependent("a", "stale", "")}},
		scenario{"garbage collector, owner of another namespace", []step{create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: 0e96ba2c-dc1f-44b1-9a5f-9d4c4a5ab6f1}]}}`)}},
		scenario{"garbage collector, owner of an unknown kind", []step{create(`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, ownerReferences: [{apiVersion: example.com/v1, kind: Unknown, name: x, uid: 0e96ba2c-dc1f-44b1-9a5f-9d4c4a5ab6f1}]}}`)}},
		scenario{"garbage collector, cycle", []step{owner, dependent("a", "owner blocking", ""), {what: "close", do: closeCycle}, {what: "delete owner", do: removing("owner", "Foreground")}}},
	)
	return all
}

func volumes() (all []scenario) {
	volume := func(name, more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-%s, labels: {disk: %s}}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 5Gi}, hostPath: {path: /x}%s}}`, name, name, more)
	}
	claim := func(name, more string) step {
		return create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}%s}}`, name, more)
	}
	class := func(more string) step {
		return create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: PLACE-c}, provisioner: example.com/disks%s}`, more)
	}
	pod := create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]}}`)
	for _, policy := range []string{"Retain", "Delete", "Recycle"} {
		all = append(all,
			scenario{"volume bound and released, " + policy, []step{volume("v", ", persistentVolumeReclaimPolicy: "+policy), claim("a", ""), remove("PersistentVolumeClaim a", background), claim("b", "")}},
			scenario{"volume deleted while bound, " + policy, []step{volume("v", ", persistentVolumeReclaimPolicy: "+policy), claim("a", ""), remove("PersistentVolume PLACE-v", background), remove("PersistentVolumeClaim a", background)}},
		)
	}
	for name, steps := range map[string][]step{
		"claim first":          {claim("a", ""), volume("v", "")},
		"smallest":             {volume("big", ""), create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-small}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 3Gi}, hostPath: {path: /x}}}`), claim("a", "")},
		"too small":            {create(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: PLACE-small}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /x}}}`), claim("a", "")},
		"selector":             {volume("v", ""), volume("w", ""), claim("a", ", selector: {matchLabels: {disk: w}}")},
		"access mode":          {volume("v", ""), create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteMany], resources: {requests: {storage: 2Gi}}}}`)},
		"block":                {volume("v", ""), claim("a", ", volumeMode: Block"), volume("w", ", volumeMode: Block")},
		"by name":              {volume("v", ""), volume("w", ""), claim("a", ", volumeName: PLACE-w")},
		"by name, taken":       {volume("v", ""), claim("a", ", volumeName: PLACE-v"), claim("b", ", volumeName: PLACE-v")},
		"by name, absent":      {claim("a", ", volumeName: PLACE-v"), volume("v", "")},
		"reserved":             {volume("v", ", claimRef: {namespace: PLACE, name: a}"), claim("b", ""), claim("a", "")},
		"reserved for another": {volume("v", ", claimRef: {namespace: PLACE, name: a, uid: 0e96ba2c-dc1f-44b1-9a5f-9d4c4a5ab6f1}"), claim("a", "")},
		"lost":                 {volume("v", ""), claim("a", ""), patch("PersistentVolume PLACE-v", "{metadata: {finalizers: null}}"), remove("PersistentVolume PLACE-v", background), patch("PersistentVolume PLACE-v", "{metadata: {finalizers: null}}")},
		"in use":               {volume("v", ""), claim("a", ""), pod, answer("run", "user"), remove("PersistentVolumeClaim a", background), answer("kill", "user"), answer("stop", "user")},
		"in use by an ended":   {volume("v", ""), claim("a", ""), pod, answer("finish", "user"), remove("PersistentVolumeClaim a", background)},
		"two claims":           {volume("v", ""), claim("a", ""), claim("b", ""), remove("PersistentVolumeClaim a", background), volume("w", "")},
		"reused":               {volume("v", ""), claim("a", ""), remove("PersistentVolumeClaim a", background), patch("PersistentVolume PLACE-v", "{spec: {claimRef: null}}"), claim("b", "")},
	} {
		all = append(all, scenario{"volume, " + name, append(steps, removeAll("PersistentVolumeClaim"))})
	}
	for _, mode := range []string{"Immediate", "WaitForFirstConsumer"} {
		for name, steps := range map[string][]step{
			"provisioner":    {claim("a", ""), patch("PersistentVolumeClaim a", "{metadata: {annotations: {volume.kubernetes.io/selected-node: node}}}")},
			"volume":         {volume("v", ""), claim("a", ""), pod, patch("PersistentVolumeClaim a", "{metadata: {annotations: {volume.kubernetes.io/selected-node: node}}}")},
			"bound by other": {claim("a", ""), volume("v", ", claimRef: {namespace: PLACE, name: a}")},
			"no provisioner": {patch("StorageClass PLACE-c", "{metadata: {labels: {a: b}}}"), claim("a", "")},
		} {
			all = append(all, scenario{"volume of a class, " + mode + ", " + name, append(append([]step{class(", volumeBindingMode: " + mode)}, steps...), removeAll("PersistentVolumeClaim"))})
		}
	}
	all = append(all, scenario{"volume of a class without provisioner", []step{
		create(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: PLACE-c}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}`),
		claim("a", ""), pod, volume("v", ""), patch("PersistentVolumeClaim a", "{metadata: {annotations: {volume.kubernetes.io/selected-node: node}}}"),
	}}, scenario{"ephemeral volume", []step{
		create(`{apiVersion: v1, kind: Pod, metadata: {name: user, labels: {l: m}}, spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}],
			volumes: [{name: v, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}}}]}}`),
		volume("v", ""), answer("run", "user"), answer("kill", "user"), answer("stop", "user"),
	}}, scenario{"ephemeral volume, name taken", []step{
		create(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: user-v}, spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`),
		create(`{apiVersion: v1, kind: Pod, metadata: {name: user}, spec: {containers: [{name: c, image: c}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: PLACE-c, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}}}]}}`),
	}})
	return all
}

func nodes() (all []scenario) {
	// A zone for each scenario, so that none delays the evictions of another.
	node := create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-a, labels: {scenario: PLACE, topology.kubernetes.io/zone: PLACE}}}`)
	condition := func(name, status string) step {
		return patch("Node/status PLACE-a", fmt.Sprintf(`{status: {conditions: [{type: Ready, status: "True", reason: Test}, {type: %s, status: "%s", reason: Test}]}}`, name, status))
	}
	pod := func(name, tolerations string) step {
		return create(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: PLACE-a, terminationGracePeriodSeconds: 5, containers: [{name: c, image: c}], tolerations: %s}}`, name, tolerations)
	}
	for _, c := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"} {
		all = append(all, scenario{"node with " + c, []step{node, condition(c, "True"), condition(c, "False"), condition(c, "Unknown")}})
	}
	for _, status := range []string{"False", "Unknown"} {
		ready := func(status string) step {
			return patch("Node/status PLACE-a", fmt.Sprintf(`{status: {conditions: [{type: Ready, status: "%s", reason: Test}]}}`, status))
		}
		all = append(all, scenario{"node whose readiness is " + status, []step{node, ready("True"),
			pod("plain", "[]"), pod("stays", `[{operator: Exists}]`), pod("soon", `[{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 2}, {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}]`),
			answer("run", "*"), ready(status), rollout(), ready("True"),
		}})
	}
	for _, effect := range []string{"NoExecute", "NoSchedule", "PreferNoSchedule"} {
		for name, tolerations := range map[string]string{
			"none": "[]", "all": "[{operator: Exists}]", "the key": "[{key: x, operator: Exists}]", "the value": "[{key: x, value: 'y'}]", "another value": "[{key: x, value: z}]",
			"two seconds": "[{key: x, operator: Exists, effect: NoExecute, tolerationSeconds: 2}]", "no second": "[{key: x, operator: Exists, effect: NoExecute, tolerationSeconds: 0}]",
			"a day": "[{key: x, operator: Exists, effect: NoExecute, tolerationSeconds: 86400}]",
		} {
			all = append(all, scenario{"taint " + effect + ", tolerated " + name, []step{node, condition("Other", "True"), pod("p", tolerations), answer("run", "*"),
				patch("Node PLACE-a", "{spec: {taints: [{key: x, value: 'y', effect: "+effect+"}]}}"), rollout(), patch("Node PLACE-a", "{spec: {taints: null}}"),
			}})
		}
	}
	return append(all,
		scenario{"node, unschedulable", []step{node, patch("Node PLACE-a", "{spec: {unschedulable: true}}"), patch("Node PLACE-a", "{spec: {unschedulable: false}}")}},
		scenario{"node, out of service", []step{node, condition("Other", "True"), pod("p", "[]"), answer("run", "*"), answer("kill", "*"), patch("Node PLACE-a", "{spec: {taints: [{key: node.kubernetes.io/out-of-service, value: x, effect: NoExecute}]}}"), rollout()}},
		scenario{"node, pod CIDR", []step{create(`{apiVersion: v1, kind: Node, metadata: {name: PLACE-a}, spec: {podCIDR: 10.9.0.0/24}}`)}},
	)
}

func accounts() (all []scenario) {
	return []scenario{
		{"service account, deleted", []step{remove("ServiceAccount default", background)}},
		{"root certificate, deleted", []step{remove("ConfigMap kube-root-ca.crt", background)}},
		{"root certificate, changed", []step{patch("ConfigMap kube-root-ca.crt", "{data: {ca.crt: other, more: x}, metadata: {labels: {a: b}}}")}},
		{"token of an absent account", []step{create(`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: t, annotations: {kubernetes.io/service-account.name: default}}}`), remove("ServiceAccount default", background)}},
		{"cluster role, aggregated", []step{
			create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: PLACE-all}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {to: PLACE}}]}}`),
			create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: PLACE-b, labels: {to: PLACE}}, rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]}`),
			create(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: PLACE-a, labels: {to: PLACE}}, rules: [{apiGroups: [""], resources: [pods], verbs: [list]}, {apiGroups: [""], resources: [pods], verbs: [get]}]}`),
			remove("ClusterRole PLACE-b", background), remove("ClusterRole PLACE-a", background), remove("ClusterRole PLACE-all", background),
		}},
	}
}
