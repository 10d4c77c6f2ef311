// Package encryption owns the encryption of objects in etcd by the configuration file
// --encryption-provider-config (KEP-1790, KEP-3299).
// https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data
package encryption

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"

	"svc.dev/svc/internal/configlines"
)

// Config is the configuration of encryption.
type Config struct {
	// File holds an EncryptionConfiguration of the API group apiserver.config.k8s.io.
	// Without one, objects are stored as they are.
	File string
	// Reload makes the server read the file again when it has changed.
	Reload bool
}

// Validate returns an error that names the flag.
func (c Config) Validate() error {
	if c.Reload && c.File == "" {
		return errors.New("--encryption-provider-config-automatic-reload: has no effect without --encryption-provider-config; set both")
	}
	return nil
}

// Encryption encrypts and decrypts what is stored.
type Encryption struct {
	// ResourceTransformers are those of the resources; nil if nothing is encrypted.
	value.ResourceTransformers
	// Checks report whether the KMS plugins answer.
	Checks []healthz.HealthChecker

	close  context.CancelFunc
	reload func(ctx context.Context) // nil without Config.Reload
}

// Open reads the file and connects to the KMS plugins that it names. The error names the
// flag and the file. serverID is the label of the metrics.
func Open(config Config, serverID string) (*Encryption, error) {
	if config.File == "" {
		return &Encryption{close: func() {}}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, config.File, config.Reload, serverID)
	if err != nil {
		cancel()
		if content, unreadable := os.ReadFile(config.File); unreadable == nil {
			err = configlines.Explain(content, err)
		}
		return nil, fmt.Errorf("--encryption-provider-config: %s: %w", config.File, err)
	}
	metrics.RecordEncryptionConfigLastConfigInfo(serverID, loaded.EncryptionFileContentHash)
	e := &Encryption{close: cancel, Checks: loaded.HealthChecks, ResourceTransformers: encryptionconfig.StaticTransformers(loaded.Transformers)}
	if config.Reload {
		// With a reload there is one check, of all plugins that the file names.
		dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], cancel, loaded.KMSCloseGracePeriod)
		e.ResourceTransformers, e.Checks = dynamic, []healthz.HealthChecker{dynamic}
		e.reload = controller.NewDynamicEncryptionConfiguration("encryption-provider-config", config.File, dynamic, loaded.EncryptionFileContentHash, serverID).Run
	}
	return e, nil
}

// Run reloads the file, if the configuration says so, until ctx is done. A file that is
// not valid is logged, and the previous one stays in force.
func (e *Encryption) Run(ctx context.Context) {
	if e.reload != nil {
		e.reload(ctx)
	}
}

// Close ends the connections to KMS plugins, after all stores have been closed.
func (e *Encryption) Close() { e.close() }
