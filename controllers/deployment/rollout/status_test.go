package rollout

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAStatusWaitsOnlyWhileSizesChangeAndCountsAreAllThatIsNew(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	progress := func(reason string, ago time.Duration) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: "True", Reason: reason, LastUpdateTime: metav1.NewTime(now.Add(-ago))}}
	}
	for rule, test := range map[string]struct {
		change func(d *appsv1.Deployment, p *Plan)
		want   bool
	}{
		"counts, and a change of size":      {func(*appsv1.Deployment, *Plan) {}, true},
		"nothing is changed":                {func(_ *appsv1.Deployment, p *Plan) { p.Actions = nil }, false},
		"a replica set is made":             {func(_ *appsv1.Deployment, p *Plan) { p.Actions = append(p.Actions, Action{Verb: Create}) }, false},
		"a replica set is deleted":          {func(_ *appsv1.Deployment, p *Plan) { p.Actions[0].Verb = Delete }, false},
		"the revision is new":               {func(_ *appsv1.Deployment, p *Plan) { p.Revision = "2" }, false},
		"the spec has not been seen before": {func(_ *appsv1.Deployment, p *Plan) { p.Status.ObservedGeneration++ }, false},
		"a condition has another reason":    {func(_ *appsv1.Deployment, p *Plan) { p.Status.Conditions = progress(NewReplicaSetAvailable, 0) }, false},
		"a condition is new": {func(d *appsv1.Deployment, p *Plan) {
			p.Status.Conditions = append(progress(ReplicaSetUpdated, 0), p.Status.Conditions...)
		}, false},
		"progress was told some time ago":         {func(d *appsv1.Deployment, _ *Plan) { d.Status.Conditions = progress(ReplicaSetUpdated, oldest) }, false},
		"no progress is told, without a deadline": {func(d *appsv1.Deployment, p *Plan) { d.Status.Conditions, p.Status.Conditions = nil, nil }, false},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Revision: "1"}}}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, Conditions: progress(ReplicaSetUpdated, oldest-time.Second)}
		p := &Plan{Revision: "1", Actions: []Action{{Verb: Change}}, Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, Conditions: progress(ReplicaSetUpdated, 0)}}
		test.change(d, p)
		if got := p.StatusCanWait(d, now); got != test.want {
			t.Errorf("%s: %t", rule, got)
		}
	}
}
