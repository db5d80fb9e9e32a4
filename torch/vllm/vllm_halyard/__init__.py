"""vLLM on Halyard: vLLM finds the platform by the entry point vllm.platform_plugins, and serves on torch.device("npu")."""


def platform():
    """The platform's class, or None where there is no device."""
    import torch
    import torch_halyard

    device = getattr(torch, torch_halyard.device_name, None)
    return "vllm_halyard.platform.HalyardPlatform" if device is not None and device.is_available() else None
