package job

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/batch"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/pods"
)

// groupsGate lets the pods of jobs be scheduled in groups (KEP-5547).
const groupsGate = "WorkloadWithJob"

// templateAnnotation is the annotation of a job whose own controller has made the Workload: the
// name of the template in it by which the job's group is made.
const templateAnnotation = "scheduling.k8s.io/group-template-name"

// groups makes the Workload and the PodGroup of a job, before its first pod. It reads both kinds,
// and alone creates and changes those that jobs control. A nil groups makes none.
type groups struct {
	client   client.Client
	recorder record.EventRecorder
	// job and workload are the kinds.
	job, workload schema.GroupVersionKind
}

// newGroups returns nil if the gate is off or the API server does not serve the kinds.
func newGroups(ctx context.Context, env *controller.Env, job schema.GroupVersionKind, recorder record.EventRecorder) (*groups, error) {
	on, err := env.On(ctx, groupsGate)
	if err != nil || !on {
		return nil, err
	}
	for _, kind := range []client.Object{&schedulingv1beta1.Workload{}, &schedulingv1beta1.PodGroup{}} {
		if ok, err := env.Served(kind); err != nil || !ok {
			return nil, err
		}
	}
	workload, err := env.Client.GroupVersionKindFor(&schedulingv1beta1.Workload{})
	if err != nil {
		return nil, err
	}
	g := &groups{client: env.Client, recorder: recorder, job: job, workload: workload}
	return g, env.Indexes.Need(ctx, workloadsByController(), groupsByWorkload())
}

// watches requests a sync of the job that controls a Workload or a PodGroup.
func (g *groups) watches(w watches) []controller.Watch[reconcile.Request] {
	if g == nil {
		return nil
	}
	owner := func(_ context.Context, obj client.Object) []reconcile.Request {
		if ref := metav1.GetControllerOfNoCopy(obj); ref != nil && w.isJob(ref) {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: ref.Name}}}
		}
		return nil
	}
	return []controller.Watch[reconcile.Request]{
		controller.Map(&schedulingv1beta1.Workload{}, owner), controller.Map(&schedulingv1beta1.PodGroup{}, owner),
	}
}

// workloadsByController finds the Workloads of a namespace by the kind and name of the controller
// that they name.
func workloadsByController() controller.Index {
	return controller.Index{Name: "spec.controllerRef", Object: &schedulingv1beta1.Workload{}, Values: func(obj client.Object) []string {
		if ref := obj.(*schedulingv1beta1.Workload).Spec.ControllerRef; ref != nil {
			return []string{controllerKey(ref.APIGroup, ref.Kind, ref.Name)}
		}
		return nil
	}}
}

func controllerKey(group, kind, name string) string { return group + "/" + kind + "/" + name }

// groupsByWorkload finds the PodGroups of a namespace by their Workload.
func groupsByWorkload() controller.Index {
	return controller.Index{Name: "spec.workloadRef", Object: &schedulingv1beta1.PodGroup{}, Values: func(obj client.Object) []string {
		if ref := obj.(*schedulingv1beta1.PodGroup).Spec.WorkloadRef; ref != nil {
			return []string{ref.WorkloadName}
		}
		return nil
	}}
}

// manages reports whether the pods of a job are to get a group, and whether the job's own
// controller has made the Workload. A job whose template names a group, and one of another
// controller, which does not ask for a group, get none.
func manages(job *batchv1.Job) (group, delegated bool) {
	_, asked := job.Annotations[templateAnnotation]
	owned := metav1.GetControllerOfNoCopy(job) != nil
	return job.Spec.Template.Spec.SchedulingGroup == nil && (!owned || asked), owned
}

// isNew reports whether a job has never had pods: others keep to be scheduled as they were.
func isNew(job *batchv1.Job, pods []*corev1.Pod) bool {
	s := &job.Status
	return len(pods) == 0 && s.StartTime == nil && s.Succeeded == 0 && s.Failed == 0 &&
		!slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended })
}

// ensure returns the group that new pods of a job are to be in, and makes it and its Workload if
// the job is new. It is nil for a job without one.
func (g *groups) ensure(ctx context.Context, job *batchv1.Job, owned []*corev1.Pod) (*schedulingv1beta1.PodGroup, error) {
	if g == nil || job.DeletionTimestamp != nil {
		return nil, nil
	}
	managed, delegated := manages(job)
	if !managed {
		return nil, nil
	}
	group, err := g.find(ctx, job, delegated, isNew(job, owned))
	if err != nil && !pods.NamespaceTerminates(err) {
		return nil, fmt.Errorf("workload and pod group of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return group, nil
}

// find finds the group of a job, or makes it if mayCreate is set.
func (g *groups) find(ctx context.Context, job *batchv1.Job, delegated, mayCreate bool) (*schedulingv1beta1.PodGroup, error) {
	var workload *schedulingv1beta1.Workload
	var template *schedulingv1beta1.PodGroupTemplate
	var err error
	if delegated {
		workload, template, err = g.parents(ctx, job)
	} else {
		workload, template, err = g.own(ctx, job, mayCreate)
	}
	if err != nil || workload == nil {
		return nil, err
	}
	group, several, err := g.groupOf(ctx, job, workload)
	switch {
	case err != nil || several:
		return nil, err
	case group == nil && mayCreate:
		return g.create(ctx, job, workload, template, !delegated)
	case group == nil:
		return nil, nil
	}
	return group, g.resize(ctx, group, template)
}

// own returns the Workload that a job controls, with its template, as the job says now. It is nil
// if there is none, or several.
func (g *groups) own(ctx context.Context, job *batchv1.Job, mayCreate bool) (*schedulingv1beta1.Workload, *schedulingv1beta1.PodGroupTemplate, error) {
	wanted, err := workloadbuilder.NewBuilder(batch.SchedulingItem(templateName(job), &job.Spec, nil), workloadbuilder.BuildOptions{
		Name: workloadName(job), Namespace: job.Namespace, Owner: metav1.NewControllerRef(job, g.job),
	}).BuildWorkload()
	if err != nil {
		g.recorder.Eventf(job, corev1.EventTypeWarning, "FailedWorkloadCompilation", "Failed to compile Workload for Job %s: %v", job.Name, err)
		return nil, nil, err
	}
	all, err := g.workloads(ctx, job.Namespace, controllerKey(g.job.Group, g.job.Kind, job.Name))
	if err != nil {
		return nil, nil, err
	}
	all = slices.DeleteFunc(all, func(w schedulingv1beta1.Workload) bool { return !metav1.IsControlledBy(&w, job) })
	switch {
	case len(all) > 1:
		klog.FromContext(ctx).Error(nil, "Job has several workloads, its pods get no group", "job", klog.KObj(job), "count", len(all))
		return nil, nil, nil
	case len(all) == 0 && !mayCreate:
		return nil, nil, nil
	case len(all) == 0:
		if err := g.client.Create(ctx, wanted); err != nil {
			if !pods.NamespaceTerminates(err) {
				g.recorder.Eventf(job, corev1.EventTypeWarning, "FailedWorkloadCreate", "Failed to create Workload for Job %s: %v", job.Name, err)
			}
			return nil, nil, err
		}
		g.recorder.Eventf(job, corev1.EventTypeNormal, "WorkloadCreated", "Created Workload %s for Job %s", wanted.Name, job.Name)
		return wanted, &wanted.Spec.PodGroupTemplates[0], nil
	}
	workload := &all[0]
	if n := len(workload.Spec.PodGroupTemplates); n != 1 {
		return nil, nil, fmt.Errorf("workload %s has %d podGroupTemplates, want exactly 1", workload.Name, n)
	}
	template, gang := &workload.Spec.PodGroupTemplates[0], wanted.Spec.PodGroupTemplates[0].SchedulingPolicy.Gang
	if is := template.SchedulingPolicy.Gang; gang != nil && is != nil && is.MinCount != gang.MinCount {
		before := client.MergeFromWithOptions(workload.DeepCopy(), client.MergeFromWithOptimisticLock{})
		is.MinCount = gang.MinCount
		if err := g.client.Patch(ctx, workload, before); err != nil {
			return nil, nil, err
		}
		template = &workload.Spec.PodGroupTemplates[0]
	}
	return workload, template, nil
}

// parents returns the Workload that names the job's controller, with the template that the job
// names. It is nil if there is none yet.
func (g *groups) parents(ctx context.Context, job *batchv1.Job) (*schedulingv1beta1.Workload, *schedulingv1beta1.PodGroupTemplate, error) {
	parent := metav1.GetControllerOfNoCopy(job)
	gv, err := schema.ParseGroupVersion(parent.APIVersion)
	if err != nil {
		return nil, nil, err
	}
	all, err := g.workloads(ctx, job.Namespace, controllerKey(gv.Group, parent.Kind, parent.Name))
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	templates := all[0].Spec.PodGroupTemplates
	i := slices.IndexFunc(templates, func(t schedulingv1beta1.PodGroupTemplate) bool { return t.Name == job.Annotations[templateAnnotation] })
	if i < 0 {
		return nil, nil, nil
	}
	return &all[0], &templates[i], nil
}

func (g *groups) workloads(ctx context.Context, namespace, controller string) ([]schedulingv1beta1.Workload, error) {
	var list schedulingv1beta1.WorkloadList
	err := g.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{workloadsByController().Name: controller})
	return list.Items, err
}

// groupOf returns the group of a workload that a job controls, nil if there is none, and reports
// whether there are several.
func (g *groups) groupOf(ctx context.Context, job *batchv1.Job, workload *schedulingv1beta1.Workload) (*schedulingv1beta1.PodGroup, bool, error) {
	var list schedulingv1beta1.PodGroupList
	if err := g.client.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingFields{groupsByWorkload().Name: workload.Name}); err != nil {
		return nil, false, err
	}
	all := slices.DeleteFunc(list.Items, func(group schedulingv1beta1.PodGroup) bool { return !metav1.IsControlledBy(&group, job) })
	switch len(all) {
	case 0:
		return nil, false, nil
	case 1:
		return &all[0], false, nil
	}
	klog.FromContext(ctx).Error(nil, "Job has several pod groups, its pods get none", "job", klog.KObj(job), "count", len(all))
	return nil, true, nil
}

// create makes the group of a job by the template of a workload. One that the job controls, too,
// owns the group besides.
func (g *groups) create(ctx context.Context, job *batchv1.Job, workload *schedulingv1beta1.Workload, template *schedulingv1beta1.PodGroupTemplate, own bool) (*schedulingv1beta1.PodGroup, error) {
	group, err := workloadbuilder.NewBuilderFromExistingWorkload(workload, workloadbuilder.BuildOptions{
		Owner: metav1.NewControllerRef(job, g.job),
	}).NewPodGroup(groupName(workload, template), template.Name)
	if err != nil {
		return nil, err
	}
	if own {
		apiVersion, kind := g.workload.ToAPIVersionAndKind()
		group.OwnerReferences = append(group.OwnerReferences, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: workload.Name, UID: workload.UID})
	}
	if err := g.client.Create(ctx, group); err != nil {
		return nil, err
	}
	g.recorder.Eventf(job, corev1.EventTypeNormal, "PodGroupCreated", "Created PodGroup %s for Job %s", group.Name, job.Name)
	return group, nil
}

// resize sets the count of a gang to that of its template.
func (g *groups) resize(ctx context.Context, group *schedulingv1beta1.PodGroup, template *schedulingv1beta1.PodGroupTemplate) error {
	is, wanted := group.Spec.SchedulingPolicy.Gang, template.SchedulingPolicy.Gang
	if is == nil || wanted == nil || is.MinCount == wanted.MinCount {
		return nil
	}
	before := client.MergeFromWithOptions(group.DeepCopy(), client.MergeFromWithOptimisticLock{})
	is.MinCount = wanted.MinCount
	if err := g.client.Patch(ctx, group, before); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// join puts a new pod of a job into the job's group, if it has one. In Kubernetes the group owns
// the pod, too: then the pods of a job that is deleted stay, as the group does while it has pods.
func join(pod *corev1.Pod, group *schedulingv1beta1.PodGroup) {
	if group != nil {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group.Name}
	}
}

// workloadName returns the name of the Workload of a job, which no other job has.
func workloadName(job *batchv1.Job) string {
	return shorten(job.Name, validation.DNS1123SubdomainMaxLength, string(job.UID))
}

// templateName returns the name of the template in the Workload of a job: that of Kubernetes, if it
// is valid.
func templateName(job *batchv1.Job) string {
	const short = "pgt-0"
	if name := job.Name + "-" + short; len(validation.IsDNS1123Label(name)) == 0 {
		return name
	}
	return short
}

// groupName returns the name of the group that is made by a template.
func groupName(workload *schedulingv1beta1.Workload, template *schedulingv1beta1.PodGroupTemplate) string {
	return shorten(workload.Name+"-"+template.Name, validation.DNS1123SubdomainMaxLength, workload.Name+template.Name)
}

// shorten returns a name with a hash of what it is of, shortened to a length.
func shorten(name string, length int, of string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(of)) // never fails
	end := "-" + rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
	return name[:min(len(name), length-len(end))] + end
}
