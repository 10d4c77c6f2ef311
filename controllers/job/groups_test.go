package job

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// newTestGroups returns groups at a server with objects.
func newTestGroups(t *testing.T, objects ...client.Object) *groups {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
	for _, index := range []struct {
		of     client.Object
		name   string
		values client.IndexerFunc
	}{
		{workloadsByController().Object, workloadsByController().Name, workloadsByController().Values},
		{groupsByWorkload().Object, groupsByWorkload().Name, groupsByWorkload().Values},
	} {
		builder = builder.WithIndex(index.of, index.name, index.values)
	}
	return &groups{
		client: builder.Build(), recorder: record.NewFakeRecorder(10), job: batchv1.SchemeGroupVersion.WithKind("Job"),
		workload: schedulingv1beta1.SchemeGroupVersion.WithKind("Workload"),
	}
}

// gangJob is a job of three pods at the same time, in a gang.
func gangJob(change func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid"}, Spec: batchv1.JobSpec{Parallelism: ptr.To(int32(3))}}
	job.Spec.Scheduling = &batchv1.JobSchedulingConfiguration{SchedulingPolicy: &schedulingv1alpha3.WorkloadPodGroupSchedulingPolicy{Gang: &schedulingv1alpha3.WorkloadPodGroupGangSchedulingPolicy{}}}
	if change != nil {
		change(job)
	}
	return job
}

// state returns the policies of the Workloads and PodGroups that there are.
func (g *groups) state(t *testing.T) string {
	t.Helper()
	policy := func(gang *schedulingv1beta1.GangSchedulingPolicy) string {
		if gang == nil {
			return "basic"
		}
		return fmt.Sprint("gang of ", gang.MinCount)
	}
	var workloads schedulingv1beta1.WorkloadList
	var groups schedulingv1beta1.PodGroupList
	for _, list := range []client.ObjectList{&workloads, &groups} {
		if err := g.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for _, w := range workloads.Items {
		all = append(all, "workload "+policy(w.Spec.PodGroupTemplates[0].SchedulingPolicy.Gang))
	}
	for _, group := range groups.Items {
		all = append(all, "group "+policy(group.Spec.SchedulingPolicy.Gang))
	}
	return strings.Join(all, ", ")
}

func TestJobsGetAGroupBeforeTheirFirstPod(t *testing.T) {
	owner := []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Train", Name: "train", UID: "train", Controller: ptr.To(true)}}
	parents := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "parents"}, Spec: schedulingv1beta1.WorkloadSpec{
		ControllerRef: &schedulingv1beta1.TypedLocalObjectReference{APIGroup: "example.com", Kind: "Train", Name: "train"},
		PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{
			{Name: "workers", SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 7}}},
		},
	}}
	for _, test := range []struct {
		rule    string
		job     *batchv1.Job
		pods    []*corev1.Pod
		before  []client.Object
		grouped bool
		want    string
	}{
		{rule: "a gang of as many as run in parallel", job: gangJob(nil), grouped: true, want: "workload gang of 3, group gang of 3"},
		{rule: "the policy is basic by default", job: gangJob(func(j *batchv1.Job) { j.Spec.Scheduling = nil }), grouped: true, want: "workload basic, group basic"},
		{rule: "a job that has had pods stays as it is", job: gangJob(func(j *batchv1.Job) { j.Status.Failed = 1 })},
		{rule: "and one that has pods", job: gangJob(nil), pods: []*corev1.Pod{{}}},
		{rule: "and one that is resumed", job: gangJob(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
		})},
		{rule: "a job whose template names a group", job: gangJob(func(j *batchv1.Job) { j.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{} })},
		{rule: "a job of another controller", job: gangJob(func(j *batchv1.Job) { j.OwnerReferences = owner })},
		{rule: "one that asks for a group", before: []client.Object{parents}, grouped: true, want: "workload gang of 7, group gang of 7", job: gangJob(func(j *batchv1.Job) {
			j.OwnerReferences, j.Annotations = owner, map[string]string{templateAnnotation: "workers"}
		})},
		{rule: "by a template that does not exist", before: []client.Object{parents}, want: "workload gang of 7", job: gangJob(func(j *batchv1.Job) {
			j.OwnerReferences, j.Annotations = owner, map[string]string{templateAnnotation: "others"}
		})},
		{rule: "before the workload exists", job: gangJob(func(j *batchv1.Job) {
			j.OwnerReferences, j.Annotations = owner, map[string]string{templateAnnotation: "workers"}
		})},
	} {
		t.Run(test.rule, func(t *testing.T) {
			g := newTestGroups(t, test.before...)
			group, err := g.ensure(t.Context(), test.job, test.pods)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.state(t); got != test.want || (group != nil) != test.grouped {
				t.Errorf("got %q, a group: %v; want %q", got, group != nil, test.want)
			}
			if group == nil {
				return
			}
			if ref := metav1.GetControllerOf(group); ref == nil || ref.UID != test.job.UID || ref.Kind != "Job" {
				t.Errorf("the group's controller is %v", ref)
			}
			pod := &corev1.Pod{}
			join(pod, group)
			if name := pod.Spec.SchedulingGroup.PodGroupName; *name != group.Name {
				t.Errorf("the pod is in group %s", *name)
			}

			// The next sync finds them, also when the job has pods.
			again, err := g.ensure(t.Context(), test.job, []*corev1.Pod{{}})
			if err != nil || again == nil || again.Name != group.Name || g.state(t) != test.want {
				t.Errorf("then: %v, %v, %s", again, err, g.state(t))
			}
		})
	}
}

func TestTheGangOfAJobIsResized(t *testing.T) {
	g, job := newTestGroups(t), gangJob(nil)
	for _, parallelism := range []int32{3, 5, 2} {
		job.Spec.Parallelism = &parallelism
		if _, err := g.ensure(t.Context(), job, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := g.state(t), fmt.Sprintf("workload gang of %d, group gang of %[1]d", parallelism); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAWorkloadThatTheJobDoesNotControlIsNotTaken(t *testing.T) {
	users := &schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mine"}, Spec: schedulingv1beta1.WorkloadSpec{
		ControllerRef:     &schedulingv1beta1.TypedLocalObjectReference{APIGroup: "batch", Kind: "Job", Name: "job"},
		PodGroupTemplates: []schedulingv1beta1.PodGroupTemplate{{Name: "mine"}},
	}}
	g := newTestGroups(t, users)
	group, err := g.ensure(t.Context(), gangJob(nil), nil)
	if err != nil || group == nil || group.Spec.WorkloadRef.WorkloadName == "mine" {
		t.Errorf("got %v, %v", group, err)
	}
}

func TestPodsOfAJobWithSeveralWorkloadsGetNoGroup(t *testing.T) {
	g, job := newTestGroups(t), gangJob(nil)
	if _, err := g.ensure(t.Context(), job, nil); err != nil {
		t.Fatal(err)
	}
	var list schedulingv1beta1.WorkloadList
	if err := g.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	second := list.Items[0].DeepCopy()
	second.Name, second.ResourceVersion, second.UID = "second", "", ""
	if err := g.client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if group, err := g.ensure(t.Context(), job, nil); err != nil || group != nil {
		t.Errorf("got %v, %v", group, err)
	}
}

func TestWithoutTheGateJobsGetNoGroup(t *testing.T) {
	var none *groups
	if group, err := none.ensure(t.Context(), gangJob(nil), nil); group != nil || err != nil || len(none.watches(watches{})) > 0 {
		t.Errorf("got %v, %v", group, err)
	}
	pod := &corev1.Pod{}
	join(pod, nil)
	if pod.Spec.SchedulingGroup != nil {
		t.Error("the pod has a group")
	}
}

func TestJobsWaitForTheReleaseThatDecidesAboutTheirGate(t *testing.T) {
	if gates := New().ReleaseGates; !slices.Contains(gates, groupsGate) {
		t.Errorf("gates %v, want %s", gates, groupsGate)
	}
}

func TestTemplatesHaveNamesThatAreLabels(t *testing.T) {
	for job, want := range map[string]string{"job": "job-pgt-0", "job.2": "pgt-0", strings.Repeat("j", 60): "pgt-0"} {
		if got := templateName(gangJob(func(j *batchv1.Job) { j.Name = job })); got != want {
			t.Errorf("%s: %s, want %s", job, got, want)
		}
	}
}

func TestNamesOfGroupsAreShortened(t *testing.T) {
	job := gangJob(func(j *batchv1.Job) { j.Name = strings.Repeat("j", 253) })
	workload := workloadName(job)
	group := groupName(&schedulingv1beta1.Workload{ObjectMeta: metav1.ObjectMeta{Name: workload}}, &schedulingv1beta1.PodGroupTemplate{Name: "t"})
	if len(workload) != 253 || len(group) != 253 || workload == group {
		t.Errorf("%d and %d characters", len(workload), len(group))
	}
}
