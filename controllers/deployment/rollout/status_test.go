package rollout

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAStatusWaitsOnlyDuringARolloutAndIfCountsAreAllThatIsNew(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	progress := func(reason string, ago time.Duration) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: "True", Reason: reason, LastUpdateTime: metav1.NewTime(now.Add(-ago))}}
	}
	for rule, test := range map[string]struct {
		change func(d *appsv1.Deployment, p *Plan)
		want   time.Duration
	}{
		"counts":                     {func(*appsv1.Deployment, *Plan) {}, 2 * time.Second},
		"counts and a size":          {func(_ *appsv1.Deployment, p *Plan) { p.Actions = []Action{{Verb: Change}} }, 2 * time.Second},
		"a replica set is made":      {func(_ *appsv1.Deployment, p *Plan) { p.Actions = []Action{{Verb: Change}, {Verb: Create}} }, 0},
		"a replica set is deleted":   {func(_ *appsv1.Deployment, p *Plan) { p.Actions = []Action{{Verb: Delete}} }, 0},
		"the revision is new":        {func(_ *appsv1.Deployment, p *Plan) { p.Revision = "2" }, 0},
		"the spec was not seen then": {func(_ *appsv1.Deployment, p *Plan) { p.Status.ObservedGeneration++ }, 0},
		"the rollout is at its end":  {func(_ *appsv1.Deployment, p *Plan) { p.Status.Conditions = progress(NewReplicaSetAvailable, 0) }, 0},
		"there is no rollout": {func(d *appsv1.Deployment, p *Plan) {
			d.Status.Conditions = progress(NewReplicaSetAvailable, 0)
			p.Status.Conditions = d.Status.Conditions
		}, 0},
		"a condition is new": {func(d *appsv1.Deployment, p *Plan) {
			p.Status.Conditions = append(progress(ReplicaSetUpdated, 0), p.Status.Conditions...)
		}, 0},
		"progress was reported three seconds ago":    {func(d *appsv1.Deployment, _ *Plan) { d.Status.Conditions = progress(ReplicaSetUpdated, 3*time.Second) }, 0},
		"progress was reported long ago":             {func(d *appsv1.Deployment, _ *Plan) { d.Status.Conditions = progress(ReplicaSetUpdated, time.Hour) }, 0},
		"progress was reported a moment ago":         {func(d *appsv1.Deployment, _ *Plan) { d.Status.Conditions = progress(ReplicaSetUpdated, 0) }, 3 * time.Second},
		"progress was reported by a clock ahead":     {func(d *appsv1.Deployment, _ *Plan) { d.Status.Conditions = progress(ReplicaSetUpdated, -time.Hour) }, 0},
		"no progress is reported without a deadline": {func(d *appsv1.Deployment, p *Plan) { d.Status.Conditions, p.Status.Conditions = nil, nil }, 0},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Revision: "1"}}}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, Conditions: progress(ReplicaSetUpdated, time.Second)}
		p := &Plan{Revision: "1", Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, Conditions: progress(ReplicaSetUpdated, 0)}}
		test.change(d, p)
		if got := p.StatusWait(d, now); got != test.want {
			t.Errorf("%s: %s", rule, got)
		}
	}
}
