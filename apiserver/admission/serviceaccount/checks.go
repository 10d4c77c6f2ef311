package serviceaccount

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
)

// isMirror reports whether a pod mirrors a static pod of a node.
func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// mirrorIsBare returns the first error of a mirror pod that asks for more than its node has.
func mirrorIsBare(pod *corev1.Pod) error {
	for _, check := range []func(*corev1.Pod) error{mirrorHasNoAccount, mirrorHasNoSecrets, mirrorHasNoToken} {
		if err := check(pod); err != nil {
			return err
		}
	}
	return nil
}

func mirrorHasNoAccount(pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return errors.New("a mirror pod may not reference service accounts")
	}
	return nil
}

func mirrorHasNoSecrets(pod *corev1.Pod) error {
	if podspec.RefersToSecret(&pod.Spec) {
		return errors.New("a mirror pod may not reference secrets")
	}
	return nil
}

func mirrorHasNoToken(pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return errors.New("a mirror pod may not use ServiceAccountToken volume projections")
		}
	}
	return nil
}

// enforceAnnotation of an account limits its pods to the secrets that the account
// lists.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

func limitsSecrets(account *corev1.ServiceAccount) bool {
	enforce, err := strconv.ParseBool(account.Annotations[enforceAnnotation])
	return err == nil && enforce
}

// check returns an error if the pod refers to a secret that the account does not
// list.
type check func(account *corev1.ServiceAccount, pod *corev1.Pod) error

func lists(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(s corev1.ObjectReference) bool { return s.Name == secret })
}

func volumesOf(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !lists(account, v.Secret.SecretName) {
			return fmt.Errorf("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	return nil
}

func variablesOf(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for at, c := range podspec.NonEphemeral(&pod.Spec) {
		what := "container"
		if at.List == podspec.InitContainers {
			what = "init container"
		}
		if err := variables(account, what, c); err != nil {
			return err
		}
	}
	return nil
}

func ephemeralVariablesOf(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for at, c := range podspec.All(&pod.Spec) {
		if at.List == podspec.EphemeralContainers {
			if err := variables(account, "ephemeral container", c); err != nil {
				return err
			}
		}
	}
	return nil
}

func variables(account *corev1.ServiceAccount, what string, c *corev1.Container) error {
	for _, env := range c.Env {
		if env.ValueFrom == nil || env.ValueFrom.SecretKeyRef == nil || lists(account, env.ValueFrom.SecretKeyRef.Name) {
			continue
		}
		return fmt.Errorf("%s %s with envVar %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
			what, c.Name, env.Name, env.ValueFrom.SecretKeyRef.Name, account.Name)
	}
	for _, all := range c.EnvFrom {
		if all.SecretRef != nil && !lists(account, all.SecretRef.Name) {
			return fmt.Errorf("%s %s with envFrom referencing secret.secretName=%q is not allowed because service account %s does not reference that secret",
				what, c.Name, all.SecretRef.Name, account.Name)
		}
	}
	return nil
}

func pullSecretsOf(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for i, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, s) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, account.Name)
		}
	}
	return nil
}
