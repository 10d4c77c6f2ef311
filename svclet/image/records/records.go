package records

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/checkpoint"
	"svc.dev/svc/svclet/image/credentials"
)

const (
	directory  = "image_manager"
	pullingDir = "pulling"
	pulledDir  = "pulled"

	intentKind = "ImagePullIntent"
	recordKind = "ImagePulledRecord"

	// maxSecrets is how many secrets a record gets from pods that may use the image
	// already; more are verified by their content only.
	maxSecrets = 100
)

// Image is an image as a pod names it, and as the runtime does.
type Image struct {
	// Name has the tag or digest, Repository has neither and includes the registry.
	Name, Repository string
	// Ref is the runtime's reference.
	Ref string
}

// Records keeps who may use the images of the node. Its methods are safe for concurrent
// use.
type Records struct {
	dir        string
	apiVersion string
	policy     Policy
	clock      clock.PassiveClock

	mu sync.Mutex
	// pulling counts the pulls of each image in flight.
	pulling map[string]int
}

// Open makes the directories of the records below the agent's directory. apiVersion is
// written into the files.
func Open(rootDir, apiVersion string, policy Policy, clock clock.PassiveClock) (*Records, error) {
	r := &Records{dir: filepath.Join(rootDir, directory), apiVersion: apiVersion, policy: policy, clock: clock, pulling: map[string]int{}}
	for _, dir := range []string{pullingDir, pulledDir} {
		if err := os.MkdirAll(filepath.Join(r.dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of records of image pulls: %w", err)
		}
	}
	return r, nil
}

// Accessible reports whether a pod may use an image of the node without pulling it. logins
// returns those of the pod's pull secrets for the image; it is called only if that depends on
// them, and its error is returned.
func (r *Records) Accessible(image Image, logins func() ([]credentials.Login, error)) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.record(image.Ref)
	if err != nil {
		klog.ErrorS(err, "Failed to read the record of an image, its credentials will be verified", "image", image.Name)
		return false, nil
	}
	pulled := record != nil || r.pulling[image.Name] > 0 || exists(r.path(pullingDir, image.Name))
	if !r.policy.Verifies(image.Repository, pulled) {
		return true, nil
	}
	if record == nil {
		return false, nil
	}
	known := record.CredentialMapping[image.Repository]
	if known.NodePodsAccessible {
		return true, nil
	}
	if len(known.KubernetesSecrets) == 0 {
		return false, nil
	}
	own, err := logins()
	if err != nil {
		return false, err
	}
	return r.hasLogin(image, known.KubernetesSecrets, own), nil
}

// hasLogin reports whether one of the logins is that of a secret with which an image was pulled.
func (r *Records) hasLogin(image Image, secrets []kubeletconfig.ImagePullSecret, logins []credentials.Login) bool {
	for _, login := range logins {
		if login.Secret == (credentials.Secret{}) {
			continue
		}
		secret := secretOf(login)
		if slices.Contains(secrets, secret) {
			return true
		}
		for _, other := range secrets {
			if !sameSecret(other, secret) && other.CredentialHash != secret.CredentialHash {
				continue
			}
			// The pod's secret may be used after the other one is gone.
			if len(secrets) < maxSecrets {
				if err := r.add(image, kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{secret}}); err != nil {
					klog.ErrorS(err, "Failed to record another secret of an image", "image", image.Name)
				}
			}
			return true
		}
	}
	return false
}

// Begin records that an image is about to be pulled. Each call is followed by one of
// Pulled or Failed.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulling[image] == 0 {
		intent := kubeletconfig.ImagePullIntent{TypeMeta: r.typeMeta(intentKind), Image: image}
		if err := r.write(r.path(pullingDir, image), &intent); err != nil {
			return fmt.Errorf("failed to record image pull intent: %w", err)
		}
	}
	r.pulling[image]++
	return nil
}

// Failed ends a pull that failed.
func (r *Records) Failed(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(image)
}

// Pulled ends a pull, and records that the login may pull the image; nil means that
// none was needed. A failure is logged: later pods will have to pull the image again.
func (r *Records) Pulled(image Image, login *credentials.Login) {
	r.mu.Lock()
	defer r.mu.Unlock()
	access := kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	if login != nil && login.Secret != (credentials.Secret{}) {
		access = kubeletconfig.ImagePullCredentials{KubernetesSecrets: []kubeletconfig.ImagePullSecret{secretOf(*login)}}
	}
	if err := r.add(image, access); err != nil {
		klog.ErrorS(err, "Failed to record the credentials of an image", "image", image.Name)
		// The intent stays: it marks the image as one that was not preloaded.
		r.pulling[image.Name]--
		return
	}
	r.end(image.Name)
}

// end ends a pull. The intent is removed with the last one.
func (r *Records) end(image string) {
	if r.pulling[image]--; r.pulling[image] > 0 {
		return
	}
	delete(r.pulling, image)
	if err := os.Remove(r.path(pullingDir, image)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "Failed to remove the intent of an image pull", "image", image)
	}
}

// Recover finishes the pulls that an agent before this one did not see the end of: their
// images get a record without credentials, so that each pod verifies its own. status
// returns the runtime's reference of an image, which is empty if there is none.
func (r *Records) Recover(ctx context.Context, status func(ctx context.Context, image string) (string, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(r.dir, pullingDir))
	if err != nil {
		return fmt.Errorf("reading the intents of image pulls: %w", err)
	}
	var failed []error
	for _, entry := range entries {
		path := filepath.Join(r.dir, pullingDir, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			failed = append(failed, os.Remove(path)) // a crash left it half-written
			continue
		}
		var intent kubeletconfig.ImagePullIntent
		if err := read(path, &intent); err != nil {
			failed = append(failed, err)
			continue
		}
		if r.pulling[intent.Image] > 0 {
			continue
		}
		if err := r.recover(ctx, intent.Image, status); err != nil {
			failed = append(failed, err)
			continue
		}
		failed = append(failed, os.Remove(path))
	}
	return errors.Join(failed...)
}

func (r *Records) recover(ctx context.Context, image string, status func(ctx context.Context, image string) (string, error)) error {
	ref, err := status(ctx, image)
	if err != nil || ref == "" {
		return err
	}
	record, err := r.record(ref)
	if err != nil || record != nil {
		return err
	}
	return r.save(&kubeletconfig.ImagePulledRecord{ImageRef: ref})
}

// Prune removes the records of images that are gone. present are the runtime's
// references, as of the given time: younger records stay.
func (r *Records) Prune(present []string, listed time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	listed = listed.Truncate(time.Second) // records have the time in whole seconds
	keep := map[string]bool{}
	for _, ref := range present {
		keep[filepath.Base(r.path(pulledDir, ref))] = true
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, pulledDir))
	if err != nil {
		return fmt.Errorf("reading the records of image pulls: %w", err)
	}
	var failed []error
	for _, entry := range entries {
		if keep[entry.Name()] {
			continue
		}
		path := filepath.Join(r.dir, pulledDir, entry.Name())
		var record kubeletconfig.ImagePulledRecord
		// What cannot be read is of no use.
		if err := read(path, &record); err == nil && !record.LastUpdatedTime.Time.Before(listed) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// add adds credentials to the record of an image.
func (r *Records) add(image Image, access kubeletconfig.ImagePullCredentials) error {
	record, err := r.record(image.Ref)
	if err != nil {
		klog.ErrorS(err, "Failed to read the record of an image, replacing it", "image", image.Name)
	}
	if record == nil {
		record = &kubeletconfig.ImagePulledRecord{ImageRef: image.Ref}
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
	}
	record.CredentialMapping[image.Repository] = merge(record.CredentialMapping[image.Repository], access)
	// Also without a change, so that Prune sees that the image has been pulled since.
	return r.save(record)
}

// merge adds credentials to others. Access of all pods replaces everything else.
func merge(old, access kubeletconfig.ImagePullCredentials) kubeletconfig.ImagePullCredentials {
	if old.NodePodsAccessible {
		return old
	}
	if access.NodePodsAccessible {
		return access
	}
	for _, secret := range access.KubernetesSecrets {
		i := slices.IndexFunc(old.KubernetesSecrets, func(other kubeletconfig.ImagePullSecret) bool { return sameSecret(other, secret) })
		if i < 0 {
			old.KubernetesSecrets = append(old.KubernetesSecrets, secret)
		} else {
			old.KubernetesSecrets[i] = secret
		}
	}
	slices.SortFunc(old.KubernetesSecrets, func(a, b kubeletconfig.ImagePullSecret) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.UID, b.Namespace+"/"+b.Name+"/"+b.UID)
	})
	return old
}

func sameSecret(a, b kubeletconfig.ImagePullSecret) bool {
	return a.Namespace == b.Namespace && a.Name == b.Name && a.UID == b.UID
}

func secretOf(login credentials.Login) kubeletconfig.ImagePullSecret {
	hash := sha256.New()
	for _, text := range []string{login.Username, login.Password} {
		fmt.Fprintf(hash, "%d:%s", len(text), text)
	}
	return kubeletconfig.ImagePullSecret{
		UID: string(login.Secret.UID), Namespace: login.Secret.Namespace, Name: login.Secret.Name,
		CredentialHash: hex.EncodeToString(hash.Sum(nil)),
	}
}

// record returns the record of an image, nil if there is none.
func (r *Records) record(ref string) (*kubeletconfig.ImagePulledRecord, error) {
	var record kubeletconfig.ImagePulledRecord
	err := read(r.path(pulledDir, ref), &record)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case record.ImageRef != ref:
		return nil, fmt.Errorf("%s: it is the record of another image, %q", r.path(pulledDir, ref), record.ImageRef)
	}
	return &record, nil
}

func (r *Records) save(record *kubeletconfig.ImagePulledRecord) error {
	record.TypeMeta, record.LastUpdatedTime = r.typeMeta(recordKind), metav1.NewTime(r.clock.Now())
	return r.write(r.path(pulledDir, record.ImageRef), record)
}

func (r *Records) typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: r.apiVersion}
}

// path returns the path of a file, whose name is the hash of what it is about.
func (r *Records) path(dir, about string) string {
	sum := sha256.Sum256([]byte(about))
	return filepath.Join(r.dir, dir, "sha256-"+hex.EncodeToString(sum[:]))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (r *Records) write(path string, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return checkpoint.Replace(path, text)
}
