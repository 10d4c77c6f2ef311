package controllers

import "slices"

func deviceTaints() (all []scenario) {
	claim := func(tolerations string) []step {
		return []step{
			create(`{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: PLACE-s}, spec: {driver: d.example.com, nodeName: node, pool: {name: PLACE, resourceSliceCount: 1}, devices: [{name: gpu}, {name: spare}]}}`),
			create(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}`),
			patch("ResourceClaim/status c", `{status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: PLACE, device: gpu, tolerations: [`+tolerations+`]}]}}}}`),
			create(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 5, resourceClaims: [{name: c, resourceClaimName: c}], containers: [{name: c, image: "web:1"}]}}`),
			answer("run", "web"),
		}
	}
	rule := func(effect string) step {
		return create(`{apiVersion: resource.k8s.io/v1beta2, kind: DeviceTaintRule, metadata: {name: PLACE-r}, spec: {deviceSelector: {pool: PLACE}, taint: {key: example.com/m, effect: %s}}}`, effect)
	}
	says := func(reason string) step { return reaches("DeviceTaintRule PLACE-r", "EvictionInProgress!", reason) }
	tainted := patch("ResourceSlice PLACE-s", `{spec: {devices: [{name: gpu, taints: [{key: example.com/m, effect: NoExecute}]}, {name: spare}]}}`)
	for tolerated, tolerations := range map[string]string{
		"not tolerated":         "",
		"tolerated":             "{key: example.com/m, operator: Exists, effect: NoExecute}",
		"tolerated for a while": "{key: example.com/m, operator: Exists, effect: NoExecute, tolerationSeconds: 2}",
		"other tolerated":       "{key: example.com/other, operator: Exists, effect: NoExecute}",
	} {
		evicted := "Completed"
		if tolerated == "tolerated" {
			evicted = "NotStarted"
		}
		all = append(all, each("device taints, "+tolerated, claim(tolerations), []operation{
			{"rule", []step{rule("NoExecute"), rollout(), says(evicted)}},
			{"rule without effect", []step{rule("None"), says("NoEffect")}},
			{"rule that keeps pods away", []step{rule("NoSchedule"), says("OtherEffect")}},
			{"slice", []step{tainted, rollout()}},
		})...)
	}
	return append(all, scenario{"device taints, rule removed in time", slices.Concat(
		claim("{key: example.com/m, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}"),
		[]step{rule("NoExecute"), remove("DeviceTaintRule PLACE-r", background)},
	)})
}

func poolStatusRequests() []scenario {
	answered := func(pool string) []step {
		return []step{
			create(`{apiVersion: resource.k8s.io/v1alpha3, kind: ResourcePoolStatusRequest, metadata: {name: PLACE-q}, spec: {driver: d.example.com, poolName: %s}}`, pool),
			reaches("ResourcePoolStatusRequest PLACE-q", "Complete?", "True"),
		}
	}
	return []scenario{
		{"state of a pool", slices.Concat([]step{
			create(`{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: PLACE-s}, spec: {driver: d.example.com, nodeName: node, pool: {name: PLACE, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu}, {name: spare}, {name: third}]}}`),
			create(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}`),
			patch("ResourceClaim/status c", `{status: {allocation: {devices: {results: [{request: r, driver: d.example.com, pool: PLACE, device: gpu}]}}}}`),
		}, answered("PLACE"))},
		{"state of a pool that does not exist", answered("PLACE-none")},
	}
}

func storageMigrations() []scenario {
	migrate := func(resource, ends string) step {
		s := create(`{apiVersion: storagemigration.k8s.io/v1beta1, kind: StorageVersionMigration, metadata: {name: PLACE-a}, spec: {resource: %s}}`, resource)
		ended, stopped := reaches("StorageVersionMigration PLACE-a", ends, "True"), reaches("StorageVersionMigration PLACE-a", "Running?", "False")
		s.until = func(s *side) bool { return ended.until(s) && stopped.until(s) }
		return s
	}
	return []scenario{
		// kube-controller-manager waits for a later change of the resource: leases are renewed.
		{"storage migration", []step{migrate("{group: coordination.k8s.io, resource: leases}", "Succeeded?")}},
		{"storage migration of a virtual resource", []step{migrate("{group: authorization.k8s.io, resource: subjectaccessreviews}", "Failed?")}},
	}
}
