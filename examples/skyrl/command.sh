cd the-folder-of-recipe.yaml
tandem train recipe.yaml --prepare
PYTHONPATH="$(tandem path without-flash-attn)""${PYTHONPATH:+:$PYTHONPATH}" \
  python -m tandem_skyrl \
  --tandem.schedule word \
  --tandem.p 0.5 \
  --tandem.cap 32 \
  --tandem.validation team \
  --tandem.rollouts "$PWD"/runs/skyrl/tandem/rollouts \
  'data.train_data=['"'"''"$PWD"'/data/gsm8k-56bf88e9577a/train.parquet'"'"']' \
  'data.val_data=['"'"''"$PWD"'/data/gsm8k-56bf88e9577a/heldout.parquet'"'"']' \
  environment.env_class=tandem_math \
  trainer.policy.model.path=Qwen/Qwen2.5-0.5B-Instruct \
  trainer.ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \
  trainer.strategy=fsdp \
  trainer.placement.colocate_all=True \
  trainer.placement.policy_num_gpus_per_node=1 \
  trainer.placement.ref_num_gpus_per_node=1 \
  trainer.train_batch_size=16 \
  trainer.policy_mini_batch_size=8 \
  trainer.micro_train_batch_size_per_gpu=2 \
  trainer.micro_forward_batch_size_per_gpu=2 \
  trainer.max_prompt_length=1024 \
  trainer.epochs=100 \
  trainer.max_training_steps=100 \
  trainer.algorithm.advantage_estimator=grpo \
  trainer.algorithm.grpo_norm_by_std=True \
  trainer.algorithm.policy_loss_type=dual_clip \
  trainer.algorithm.loss_reduction=token_mean \
  trainer.algorithm.eps_clip_low=0.2 \
  trainer.algorithm.eps_clip_high=0.2 \
  trainer.algorithm.use_entropy_loss=False \
  trainer.algorithm.use_kl_loss=False \
  trainer.policy.optimizer_config.lr=1e-06 \
  trainer.policy.optimizer_config.num_warmup_steps=0 \
  generator.n_samples_per_prompt=8 \
  generator.max_input_length=1024 \
  generator.sampling_params.max_generate_length=512 \
  generator.sampling_params.temperature=0.6 \
  generator.eval_n_samples_per_prompt=4 \
  generator.eval_sampling_params.max_generate_length=512 \
  generator.eval_sampling_params.temperature=0.6 \
  generator.eval_sampling_params.top_p=0.95 \
  generator.inference_engine.num_engines=1 \
  generator.inference_engine.tensor_parallel_size=1 \
  generator.inference_engine.gpu_memory_utilization=0.5 \
  generator.inference_engine.engine_init_kwargs.max_model_len=1536 \
  trainer.flash_attn=False \
  trainer.remove_microbatch_padding=False \
  trainer.eval_before_train=False \
  trainer.eval_interval=20 \
  trainer.hf_save_interval=20 \
  trainer.ckpt_interval=20 \
  trainer.max_ckpts_to_keep=1 \
  trainer.resume_mode=latest \
  trainer.logger=console \
  trainer.project_name=tandem \
  trainer.run_name=tandem \
  trainer.ckpt_path="$PWD"/runs/skyrl/tandem/checkpoints \
  trainer.export_path="$PWD"/runs/skyrl/tandem/export \
  trainer.log_path="$PWD"/runs/skyrl/tandem/logs
