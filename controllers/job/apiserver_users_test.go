package job

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/pods"
)

// This file has what users and nodes do to an apiServer.

// setJob creates the job, or changes its spec.
func (w *apiServer) setJob(change func(*batchv1.JobSpec)) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "work", UID: "job", CreationTimestamp: metav1.NewTime(w.now)}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "work"}}}
	if w.job != nil {
		job = w.job.DeepCopy()
	}
	change(&job.Spec)
	if w.job == nil {
		w.jobs.PrepareCreate(context.Background(), nil, job)
	}
	w.jobs.Default(job)
	var errs []string
	for _, err := range w.jobs.Validate(job) {
		errs = append(errs, err.Error())
	}
	if len(errs) == 0 {
		w.storeJob(job)
	}
	return errs
}

// rewriteJob writes the job without a change.
func (w *apiServer) rewriteJob() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.job != nil {
		w.storeJob(w.job.DeepCopy())
	}
}

// deleteJob deletes the job, which remains as long as it has finalizers.
func (w *apiServer) deleteJob(finalizers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	job := w.job.DeepCopy()
	job.Finalizers, job.DeletionTimestamp = finalizers, ptr.To(metav1.NewTime(w.now))
	if len(finalizers) > 0 {
		w.storeJob(job)
		return
	}
	w.job = nil
	w.changes = append(w.changes, change{name: "work"})
}

// update changes a pod like its node.
func (w *apiServer) update(name string, do func(pod *corev1.Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pod := w.pods[name].DeepCopy()
	do(pod)
	w.storePod(pod)
}

// start makes the containers of a pod run and ready.
func start(pod *corev1.Pod) {
	pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp}}
}

// end terminates the container of a pod with an exit code.
func (w *apiServer) end(name string, code int32) {
	w.update(name, func(pod *corev1.Pod) {
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions = "node", corev1.PodSucceeded, nil
		if code != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(w.now)},
		}}}
	})
}

// deletePod deletes a pod gracefully.
func (w *apiServer) deletePod(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.terminate(w.pods[name].DeepCopy())
}

func (w *apiServer) terminate(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		return
	}
	grace := int64(30)
	if pod.Spec.NodeName == "" || pods.IsTerminal(pod) {
		grace = 0
	}
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(w.now.Add(time.Duration(grace)*time.Second))), &grace
	w.storePod(pod)
}

// endPod ends the grace period of a deleted pod.
func (w *apiServer) endPod(name string, code int32) {
	if pod := w.pods[name]; !pods.IsTerminal(pod) {
		w.end(name, code)
	}
	w.update(name, func(pod *corev1.Pod) { pod.DeletionGracePeriodSeconds = ptr.To[int64](0) })
}
