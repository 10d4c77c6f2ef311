package controllers

import "fmt"

func jobs() (all []scenario) {
	const job = "Job web"
	pod := `{spec: {restartPolicy: Never, terminationGracePeriodSeconds: 5, containers: [{name: c, image: "web:1"}]}}`
	suspend := func(yes bool) step { return patch(job, fmt.Sprintf("{spec: {suspend: %t}}", yes)) }
	operations := []operation{
		{"succeeds", []step{answer("run", "*"), answer("finish", "*"), answer("finish", "*"), answer("finish", "*")}},
		{"succeeds in part", []step{answer("run", "*"), answer("finish", "web~1"), answer("finish", "web-0~1"), answer("run", "*"), answer("finish", "*"), answer("finish", "*")}},
		{"fails", []step{answer("run", "*"), answer("fail", "web~1"), answer("fail", "web-0~1"), rollout(), reaches(job, "Failed?", "True")}},
		{"suspended and resumed", []step{answer("run", "*"), suspend(true), answer("stop", "*"), suspend(false), answer("run", "*"), answer("finish", "*"), answer("finish", "*")}},
		{"killed pods", []step{answer("run", "*"), answer("kill", "*"), answer("stop", "*"), rollout()}},
		{"foreground", []step{answer("run", "*"), remove(job, foreground), rollout()}},
		{"background", []step{answer("run", "*"), answer("finish", "*"), remove(job, background), rollout()}},
		{"orphans", []step{answer("run", "*"), remove(job, orphan), rollout()}},
		{"deadline", []step{answer("run", "*"), patch(job, "{spec: {activeDeadlineSeconds: 1}}"), rollout(), reaches(job, "Failed?", "True"), rollout()}},
		{"more parallelism", []step{answer("run", "*"), patch(job, "{spec: {parallelism: 3}}"), answer("run", "*"), patch(job, "{spec: {parallelism: 1}}"), rollout(), patch(job, "{spec: {parallelism: 0}}"), rollout()}},
	}
	for name, text := range map[string]string{
		"one":      "backoffLimit: 0",
		"two of 3": "backoffLimit: 0, completions: 3, parallelism: 2",
		"queue":    "backoffLimit: 0, parallelism: 2",
		"indexed":  "backoffLimit: 0, completions: 3, parallelism: 2, completionMode: Indexed",
	} {
		all = append(all, each("job "+name, []step{create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {%s, template: %s}}`, text, pod)}, operations)...)
	}
	more := map[string][]step{
		"ttlSecondsAfterFinished: 2":                              {answer("run", "*"), answer("finish", "*"), reaches(job, "", "gone")},
		"suspend: true, parallelism: 2":                           {patch(job, `{spec: {template: {metadata: {labels: {more: x}}}}}`), suspend(false), answer("run", "*"), answer("finish", "*")},
		"backoffLimit: 1":                                         {answer("fail", "*"), reaches(job, "status.active", "1"), answer("run", "*"), answer("fail", "*"), reaches(job, "Failed?", "True")},
		"podReplacementPolicy: Failed":                            {answer("run", "*"), answer("kill", "*"), answer("stop", "*"), answer("run", "*"), answer("finish", "*")},
		"podReplacementPolicy: Failed, parallelism: 2":            {answer("run", "*"), suspend(true), suspend(false), answer("stop", "*"), rollout()},
		"completions: 0":                                          {},
		"parallelism: 0":                                          {patch(job, "{spec: {parallelism: 1}}"), answer("finish", "*")},
		"completions: 2, parallelism: 2, completionMode: Indexed": {answer("run", "*"), patch(job, "{spec: {completions: 3, parallelism: 3}}"), answer("run", "*"), patch(job, "{spec: {completions: 1, parallelism: 1}}"), rollout(), answer("finish", "*")},
		"completions: 3, parallelism: 3, completionMode: Indexed, backoffLimitPerIndex: 0":                             {answer("run", "*"), answer("fail", "web-1~1"), answer("finish", "*")},
		"completions: 3, parallelism: 3, completionMode: Indexed, backoffLimitPerIndex: 0, maxFailedIndexes: 1":        {answer("run", "*"), answer("fail", "web-1~1"), answer("fail", "web-2~1"), rollout()},
		"completions: 2, parallelism: 2, completionMode: Indexed, backoffLimitPerIndex: 1":                             {answer("run", "*"), answer("fail", "web-1~1"), reaches(job, "status.failed", "1"), reaches(job, "status.active", "2"), answer("run", "*"), answer("finish", "*")},
		"completions: 3, parallelism: 3, completionMode: Indexed, successPolicy: {rules: [{succeededIndexes: \"1\"}]}": {answer("run", "*"), answer("finish", "web-1~1"), rollout()},
		"completions: 3, parallelism: 3, completionMode: Indexed, successPolicy: {rules: [{succeededCount: 2}]}":       {answer("run", "*"), answer("finish", "web-1~1"), answer("finish", "web-0~1"), rollout()},
		"managedBy: example.com/other": {},
	}
	for action, of := range map[string]string{"FailJob": "values: [42]", "Ignore": "values: [42]", "Count": "values: [42]"} {
		text := fmt.Sprintf("backoffLimit: 0, podFailurePolicy: {rules: [{action: %s, onExitCodes: {operator: In, %s}}]}", action, of)
		more[text] = []step{answer("run", "*"), answer("fail42", "*"), rollout()}
		text = fmt.Sprintf("backoffLimit: 0, podFailurePolicy: {rules: [{action: %s, onPodConditions: [{type: DisruptionTarget}]}]}", action)
		more[text] = []step{answer("run", "*"), answer("disrupt", "*"), answer("fail", "*"), rollout()}
	}
	for text, steps := range more {
		begin := []step{create(`{apiVersion: batch/v1, kind: Job, metadata: {name: web}, spec: {%s, template: %s}}`, text, pod)}
		all = append(all, each("job with "+text, begin, []operation{{"to its end", steps}})...)
	}
	return all
}

func cronJobs() (all []scenario) {
	text := func(more string) step {
		return create(`{apiVersion: batch/v1, kind: CronJob, metadata: {name: cron}, spec: {schedule: "0 0 29 2 *", %s, jobTemplate: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "web:1"}]}}}}}}`, more)
	}
	// It was last due on the last 29th of February, which is missed.
	missed := patch("CronJob/status cron", `{status: {lastScheduleTime: "2023-01-01T00:00:00Z"}}`)
	changed := patch("CronJob cron", `{spec: {schedule: "0 1 29 2 *"}}`)
	// Whether a job starts for a time before its schedule was changed depends, with
	// kube-controller-manager, on what else it sees; after a suspension one always does.
	suspended := func(hour int) step {
		return patch("CronJob cron", fmt.Sprintf(`{spec: {suspend: true, schedule: "0 %d 29 2 *"}}`, hour))
	}
	resumed := patch("CronJob cron", `{spec: {suspend: false}}`)
	for _, policy := range []string{"Allow", "Forbid", "Replace"} {
		for _, due := range []string{"", ", startingDeadlineSeconds: 100", ", startingDeadlineSeconds: 100000000", ", timeZone: Europe/Berlin", ", suspend: true"} {
			all = append(all, each("cron job "+policy+due, []step{text("concurrencyPolicy: " + policy + due), missed}, []operation{
				{"succeeds", []step{answer("finish", "*"), changed, answer("finish", "*")}},
				{"runs when the next is due", []step{answer("run", "*"), patch("CronJob/status cron", `{status: {lastScheduleTime: "2023-01-01T00:00:00Z"}}`), changed, rollout()}},
			})...)
		}
	}
	for _, limits := range []string{"successfulJobsHistoryLimit: 0", "failedJobsHistoryLimit: 0", "successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 1"} {
		for _, how := range []string{"finish", "fail"} {
			all = append(all, scenario{"cron job with " + limits + ", " + how, []step{text(limits), missed, answer(how, "*"), suspended(1), resumed, answer(how, "*"), suspended(2), resumed, answer(how, "*")}})
		}
	}
	all = append(all,
		scenario{"cron job, foreground", []step{text("suspend: false"), missed, answer("run", "*"), remove("CronJob cron", foreground), rollout()}},
		scenario{"cron job, background", []step{text("suspend: false"), missed, answer("run", "*"), remove("CronJob cron", background), rollout()}},
		scenario{"cron job, orphans", []step{text("suspend: false"), missed, answer("run", "*"), remove("CronJob cron", orphan)}},
		scenario{"cron job, deleted job", []step{text("suspend: false"), missed, answer("run", "*"), removeAll("Job"), rollout()}},
		scenario{"cron job with the missed starts of years", []step{text("suspend: true"), patch("CronJob cron", `{spec: {schedule: "0 0 1 * *"}}`), missed, resumed, rollout()}},
	)
	return all
}
