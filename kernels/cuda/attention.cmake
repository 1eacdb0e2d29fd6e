# The tile kernels of attention: one file and one instantiation each, and the table that finds them.
set(declarations "")
set(entries "")
foreach(type bf16 f16)
  set(element __nv_bfloat16)
  if(type STREQUAL f16)
    set(element __half)
  endif()
  foreach(head_dim 64 80 96 128 256)
    foreach(kind narrow middle wide)
      set(file ${CMAKE_CURRENT_BINARY_DIR}/attention_tile_${kind}_${head_dim}_${type}.cu)
      configure_file(${CMAKE_CURRENT_LIST_DIR}/attention_tile.cu.in ${file} @ONLY)
      target_sources(banyan PRIVATE ${file})
      string(APPEND declarations "TileKernel tile_kernel_${kind}_${head_dim}_${type}();\n")
      string(APPEND entries "  if (kind == TileKind::${kind} && head_dim == ${head_dim} && kv_type == DType::${type}) "
                            "return tile_kernel_${kind}_${head_dim}_${type}();\n")
    endforeach()
  endforeach()
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/attention_tile_table.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/attention_tile_table.cpp @ONLY)
target_sources(banyan PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/attention_tile_table.cpp
                              ${CMAKE_CURRENT_LIST_DIR}/attention.cpp ${CMAKE_CURRENT_LIST_DIR}/attention_generic.cu
                              ${CMAKE_CURRENT_LIST_DIR}/attention_merge.cu)
