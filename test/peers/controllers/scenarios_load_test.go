package controllers

import "fmt"

// loads are scenarios of autoscalers with metrics.
func loads() (all []scenario) {
	begin := []step{
		create(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}},
			spec: {terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1", resources: {requests: {cpu: 200m, memory: 100Mi}}}]}}}}`), rollout(),
	}
	autoscaler := func(metrics, more string) step {
		return create(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web},
			minReplicas: 2, maxReplicas: 8, metrics: [%s]%s}}`, metrics, more)
	}
	const pods = "{type: Pods, pods: {metric: {name: queue}, target: {type: AverageValue, averageValue: 10}}}"
	for kind, m := range map[string]struct{ metric, name, target, more, less, much string }{
		"cpu utilization":          {"{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}", "cpu", "100m", "150m", "20m", "2"},
		"cpu":                      {"{type: Resource, resource: {name: cpu, target: {type: AverageValue, averageValue: 100m}}}", "cpu", "100m", "180m", "20m", "2"},
		"memory":                   {"{type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 80}}}", "memory", "80Mi", "110Mi", "10Mi", "1Gi"},
		"cpu of a container":       {"{type: ContainerResource, containerResource: {name: cpu, container: c, target: {type: Utilization, averageUtilization: 50}}}", "cpu", "100m", "150m", "20m", "2"},
		"cpu of another container": {"{type: ContainerResource, containerResource: {name: cpu, container: other, target: {type: Utilization, averageUtilization: 50}}}", "cpu", "100m", "150m", "20m", "2"},
		"pods":                     {pods, "queue", "10", "15", "1", "1k"},
		"service":                  {"{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: web}, metric: {name: hits}, target: {type: Value, value: 100}}}", "hits", "100", "150", "20", "10k"},
		"service per pod":          {"{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: web}, metric: {name: hits}, target: {type: AverageValue, averageValue: 100}}}", "hits", "500", "500", "20", "10k"},
		"namespace":                {"{type: Object, object: {describedObject: {apiVersion: v1, kind: Namespace, name: PLACE}, metric: {name: hits}, target: {type: Value, value: 100}}}", "hits", "100", "150", "20", "10k"},
		"external":                 {"{type: External, external: {metric: {name: jobs}, target: {type: Value, value: 100}}}", "jobs", "100", "150", "20", "10k"},
		"external per pod":         {"{type: External, external: {metric: {name: jobs, selector: {matchLabels: {a: b}}}, target: {type: AverageValue, averageValue: 100}}}", "jobs", "500", "500", "20", "10k"},
	} {
		all = append(all, each("load, "+kind, append(begin, autoscaler(m.metric, ""), read(m.name)), []operation{
			{"at its target", []step{load(m.name, m.target), follow(m.name)}},
			{"more, and less", []step{load(m.name, m.more), load(m.name, m.target), follow(m.name), load(m.name, m.less), follow(m.name)}},
			{"no longer measured", []step{load(m.name, m.target), load(m.name, "none"), follow(m.name)}},
			{"beyond the limit", []step{load(m.name, m.target), load(m.name, m.much), follow(m.name)}},
		})...)
	}
	limited := func(name, behavior string) scenario {
		return scenario{"load, behavior, " + name, append(begin, autoscaler(pods, ", behavior: "+behavior), read("queue"), load("queue", "20"), load("queue", "10"), follow("queue"), load("queue", "1"), follow("queue"))}
	}
	const jobs = "{type: External, external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: 100}}}"
	least := func(n int) step {
		return patch("HorizontalPodAutoscaler web", fmt.Sprintf("{spec: {minReplicas: %d}}", n))
	}
	idle := append(begin, create(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: web}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web},
		minReplicas: 0, maxReplicas: 8, metrics: [%s]}}`, jobs), read("jobs"), load("jobs", "0"), follow("jobs"))
	all = append(all, each("load, none", idle, []operation{
		{"and some", []step{load("jobs", "250"), follow("jobs")}},
		{"and the least is 2", []step{least(2), follow("jobs")}},
		{"and a user scales up", []step{scale("Deployment web", 2), follow("jobs")}},
		{"and a user had scaled to zero", []step{load("jobs", "250"), follow("jobs"), scale("Deployment web", 0), rollout(), least(2), scale("Deployment web", 1), follow("jobs")}},
	})...)
	return append(all,
		limited("one up", "{scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 600}]}}"),
		limited("a third up", "{scaleUp: {policies: [{type: Percent, value: 34, periodSeconds: 600}]}}"),
		limited("one down", "{scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 600}]}}"),
		limited("the least", "{scaleUp: {selectPolicy: Min, policies: [{type: Pods, value: 1, periodSeconds: 600}, {type: Percent, value: 100, periodSeconds: 600}]}}"),
		limited("never down", "{scaleDown: {selectPolicy: Disabled}}"),
		limited("never up", "{scaleUp: {selectPolicy: Disabled}}"),
		limited("down later", "{scaleDown: {stabilizationWindowSeconds: 600}}"),
		limited("tolerant", `{scaleUp: {tolerance: "2"}}`),
		scenario{"load, two metrics", append(begin, autoscaler(pods+", "+jobs, ""), read("jobs"),
			load("queue", "10"), load("jobs", "500"), follow("jobs"), load("jobs", "none"), load("queue", "1"), follow("queue"))},
		scenario{"load, pods that are not ready", append(begin, answer("unready", "*1"), autoscaler(pods, ""), read("queue"), load("queue", "20"))},
	)
}
